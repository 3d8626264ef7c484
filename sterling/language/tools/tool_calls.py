"""Tools that a model may call in its answers: their definition, how calls are written, how they
run.

A call is written ``<NAME>text</NAME>``, short enough for a small model, where the text is the
tool's first argument; or, as instruction-tuned models write it, ``<tool_call>{"name": "NAME",
"arguments": {...}}</tool_call>``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sterling.language.away_services import ask_until_answered, away_reason
from sterling.language.sandbox import Limits, run_python
from sterling.language.tools.calculator import calculate
from sterling.language.tools.corpus_search import Corpus
from sterling.language.tools.thread_bound_calls import refuse_wrong_thread
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.away_errors import Away
from sterling.system.mistake import Mistake

MAX_CHARACTERS = 2000  # of a tool's answer
_JSON_TYPES: dict[type, str] = {
    **{str: "string", int: "integer", float: "number", bool: "boolean"},
    **{list: "array", dict: "object", type(None): "null"},
}
_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    **{"string": str, "integer": int, "number": (int, float), "boolean": bool},
    **{"array": list, "object": dict, "null": type(None)},
}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    ``parameters`` is the JSON schema of its arguments. ``run`` takes them by name; if it raises,
    the model is told the error, and the call counts as failed. If it raises that a service is away
    (:mod:`sterling.system.away_errors`), it is asked again instead.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., Any]

    @property
    def schema(self) -> dict[str, Any]:
        """Return the description that chat templates take (``tools`` of a scene's Message)."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call found in a response. ``fault`` says what is wrong with it; empty: nothing."""

    name: str
    arguments: dict[str, Any]
    fault: str = ""


def tool_from_function(function: Callable[..., Any]) -> Tool:
    """Return a tool made from a function with annotated arguments and a docstring, whose first
    paragraph is the description. Supported annotations: str, int, float, bool, list, dict, a
    Literal of values, and ``X | None``. Mistake if something is missing or unsupported."""
    name = function.__name__
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    if not paragraphs[0]:
        raise Mistake(f"the tool {name} has no docstring; add one that says what the tool does")
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for each in inspect.signature(function).parameters.values():
        if each.name not in hints or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise Mistake(f"{each.name} of the tool {name} has no type; annotate it, as in x: int")
        properties[each.name] = _argument_schema(
            hints[each.name], f"{each.name} of the tool {name}"
        )
        required += [each.name] if each.default is each.empty else []
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name, " ".join(paragraphs[0].split()), schema, function)


def _argument_schema(annotation: Any, what: str) -> dict[str, Any]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        kinds = dict.fromkeys(_argument_schema(type(each), what)["type"] for each in inner)
        return {"type": next(iter(kinds)) if len(kinds) == 1 else [*kinds], "enum": [*inner]}
    if origin in (typing.Union, types.UnionType) and len(inner) == 2 and type(None) in inner:
        made = _argument_schema(next(each for each in inner if each is not type(None)), what)
        values = {"enum": [*made["enum"], None]} if "enum" in made else {}
        return {**made, "type": [*_allowed_types(made), "null"], **values}
    kind = _JSON_TYPES.get(origin or annotation)
    if kind is None:
        known = ", ".join(each.__name__ for each in _JSON_TYPES if each is not type(None))
        wrong = f"{what} has type {annotation}, which no call can contain"
        raise Mistake(f"{wrong}; use one of {known}")
    if kind == "array" and inner:
        return {"type": kind, "items": _argument_schema(inner[0], what)}
    return {"type": kind}


def _allowed_types(schema: dict[str, Any]) -> list[str]:
    """Return the types that a schema allows; none if it allows all."""
    allowed = schema.get("type", [])
    return [allowed] if isinstance(allowed, str) else list(allowed)


def calculator_tool() -> Tool:
    """Return the tool ``calc``: the value of an expression; see
    :func:`sterling.language.tools.calculator.calculate`."""

    def calc(expression: str) -> str:
        """Compute the value of an arithmetic expression, such as 12*(7+3)."""
        return calculate(expression)

    return tool_from_function(calc)


def python_tool(limits: Limits | None = None) -> Tool:
    """Return the tool ``python``: runs a script in a sandbox, by default for at most 2 s, and gives
    its output, or why it has none."""
    limits = limits or Limits(seconds=2.0)

    def python(code: str) -> str:
        """Run Python code and return what it prints and the value of its last line."""
        outcome = run_python(code, limits)
        if outcome.verdict == "pass":
            return outcome.output.strip() or "(no output)"
        raise RuntimeError(f"{outcome.verdict}: {outcome.detail}")

    return tool_from_function(python)


def search_tool(corpus: Corpus, count: int = 3) -> Tool:
    """Return the tool ``search``: the ``count`` best lines of a corpus."""

    def search(query: str) -> str:
        """Search a collection of texts and return the lines that match best."""
        return "\n".join(corpus.search(query, count)) or "nothing found"

    return tool_from_function(search)


def find_tool(name: str) -> Tool:
    """Return a tool by name: ``calc``, ``python``, or ``search:FILE`` with a text file's lines.
    Tools of one's own are named ``FILE.py:make`` (:func:`tools_by_name`)."""
    if name.startswith("search:"):
        return search_tool(Corpus.read(Path(name.removeprefix("search:"))))
    makers = {"calc": calculator_tool, "python": python_tool}
    if name not in makers:
        known = "calc, python, search:FILE or your own FILE.py:make"
        raise Mistake(f"no tool is called {name!r}{did_you_mean(name, makers, f'use {known}')}")
    return makers[name]()


def tools_by_name(tools: Iterable[str | Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Return tools by name, made from names, references, tools and functions; Mistake if two share
    a name."""
    found: dict[str, Tool] = {}
    for each in itertools.chain.from_iterable(map(_tools_of_reference, tools)):
        made = find_tool(each) if isinstance(each, str) else each
        if not isinstance(made, Tool):
            made = tool_from_function(made)
        if made.name in found or made.name == "tool_call":
            raise Mistake(f"a second tool is called {made.name!r}; rename one")
        found[made.name] = made
    return found


def _tools_of_reference(each: Any) -> list[Any]:
    """Return the tools of a reference, ``FILE.py:make``: a list, a function, or what a function
    without arguments returns. Anything else is one tool."""
    if not isinstance(each, str) or not user_imports.is_reference(each):
        return [each]
    made = user_imports.load(each)
    if callable(made) and not inspect.signature(made).parameters:
        made = made()
    return list(made) if isinstance(made, list | tuple) else [made]


def find_calls(text: str, tools: Mapping[str, Tool]) -> list[Call]:
    """Return the calls in a response, in order; a call that is begun but never closed is a faulty
    one."""
    names = "|".join(map(re.escape, ["tool_call", *tools]))
    found: list[Call] = []
    place = 0
    while begun := re.compile(f"<({names})>").search(text, place):
        name, start = begun[1], begun.end()
        end = text.find(f"</{name}>", start)
        if end < 0:
            return [*found, Call(name, {}, f"<{name}> is never closed")]
        inside, place = text[start:end].strip(), end + len(name) + 3
        found.append(
            _parse_json_call(inside)
            if name == "tool_call"
            else _parse_short_call(tools[name], inside)
        )
    return found


def _parse_json_call(inside: str) -> Call:
    try:
        data = json.loads(inside)
        name, arguments = data["name"], data.get("arguments", {})
        if isinstance(arguments, str):  # some models write the arguments as text that is JSON
            arguments = json.loads(arguments)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Call("tool_call", {}, "a call is JSON with name and arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return Call("tool_call", {}, "the name is text and the arguments are an object")
    return Call(name, arguments)


def _parse_short_call(tool: Tool, inside: str) -> Call:
    """Return the call of a text, which is the first argument: one of its allowed values as written,
    or JSON if the argument is not a text."""
    properties = tool.parameters.get("properties", {})
    if not properties:
        return Call(tool.name, {})
    first, schema = next(iter(properties.items()))
    for value in schema.get("enum", []):
        if inside in (value, json.dumps(value)):
            return Call(tool.name, {first: value})
    if "string" in (_allowed_types(schema) or ["string"]):
        return Call(tool.name, {first: inside})
    try:
        return Call(tool.name, {first: json.loads(inside)})
    except (ValueError, RecursionError):
        return Call(tool.name, {}, f"{first} must be JSON")


def run_call(call: Call, tools: Mapping[str, Tool]) -> tuple[bool, str]:
    """Carry out a call; return whether it succeeded, and what the model is told, at most 2,000
    characters. Any error is told as ``error: ...`` and never raised, except that a tool whose
    service is away is asked again until it answers; Away if it never does."""
    chosen = tools.get(call.name)
    fault = call.fault
    if not fault and chosen is None:
        fault = f"no tool is called {call.name!r}; there are {', '.join(tools)}"
    elif not fault and chosen is not None:
        fault = _argument_fault(call.arguments, chosen.parameters)
    if fault or chosen is None:
        return False, f"error: {fault}"[:MAX_CHARACTERS]
    run, who = functools.partial(chosen.run, **call.arguments), f"the tool {chosen.name}"
    try:
        return True, str(ask_until_answered(run, who))[:MAX_CHARACTERS]
    except Exception as error:  # the model reads whatever a tool raises
        refuse_wrong_thread(error)
        if reason := away_reason(error):  # which is not the model's failure
            raise Away(f"{who} is away: {reason}") from error
        return False, f"error: {error}"[:MAX_CHARACTERS]


def _argument_fault(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return what is wrong with the arguments; empty: nothing."""
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in arguments:
            return f"{name} is missing"
    for name, value in arguments.items():
        if name not in known:
            return f"there is no argument {name!r}"
        if "enum" in known[name] and value not in known[name]["enum"]:
            return f"{name} must be one of {', '.join(map(str, known[name]['enum']))}"
        kinds = _allowed_types(known[name])
        if kinds and not any(_has_json_type(value, kind) for kind in kinds):
            return f"{name} must be {' or '.join(kinds)}"
    return ""


def _has_json_type(value: Any, kind: str) -> bool:
    """Whether a value has JSON's type ``kind``; a Python bool does not count as a number."""
    number = kind in ("integer", "number")
    return isinstance(value, _PYTHON_TYPES[kind]) and not (number and isinstance(value, bool))
