"""Tools that a model may call in its answers: what they are, how calls are written and answered.

A call is written ``<NAME>text</NAME>``, short enough for a small model, where the text is the
tool's first argument; or, as instruction-tuned models write it,
``<tool_call>{"name": "NAME", "arguments": {...}}</tool_call>``.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sterling.language.calculator import calculate
from sterling.language.corpus import Corpus
from sterling.language.sandbox import Limits, run_python
from sterling.naming import hint
from sterling.types import Mistake

LONGEST = 2000  # characters of a tool's answer
_KINDS: dict[type, str] = {
    **{str: "string", int: "integer", float: "number", bool: "boolean"},
    **{list: "array", dict: "object", type(None): "null"},
}
_PYTHON: dict[str, type | tuple[type, ...]] = {
    **{"string": str, "integer": int, "number": (int, float), "boolean": bool},
    **{"array": list, "object": dict, "null": type(None)},
}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    ``parameters`` is the JSON schema of its arguments. ``run`` takes them by name; an exception
    that it raises is told to the model and costs it that call.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., Any]

    @property
    def schema(self) -> dict[str, Any]:
        """The description that chat templates take (``tools`` of a scene's Message)."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call found in a response. ``fault`` says what is wrong with it, or is empty."""

    name: str
    arguments: dict[str, Any]
    fault: str = ""


def tool(function: Callable[..., Any]) -> Tool:
    """A tool from a function with annotated arguments and a docstring, whose first paragraph is
    the description. Known annotations: str, int, float, bool, list, dict, a Literal of values, and
    ``X | None``. Mistake where something is missing or unknown."""
    name = function.__name__
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    if not paragraphs[0]:
        raise Mistake(f"the tool {name} has no docstring; say in one what it does")
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for each in inspect.signature(function).parameters.values():
        if each.name not in hints or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise Mistake(f"{each.name} of the tool {name} has no type; annotate it, as in x: int")
        properties[each.name] = _schema(hints[each.name], f"{each.name} of the tool {name}")
        required += [each.name] if each.default is each.empty else []
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name, " ".join(paragraphs[0].split()), schema, function)


def _schema(annotation: Any, what: str) -> dict[str, Any]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        kinds = dict.fromkeys(_schema(type(each), what)["type"] for each in inner)
        return {"type": next(iter(kinds)) if len(kinds) == 1 else [*kinds], "enum": [*inner]}
    if origin in (typing.Union, types.UnionType) and len(inner) == 2 and type(None) in inner:
        made = _schema(next(each for each in inner if each is not type(None)), what)
        values = {"enum": [*made["enum"], None]} if "enum" in made else {}
        return {**made, "type": [*_kinds(made), "null"], **values}
    kind = _KINDS.get(origin or annotation)
    if kind is None:
        known = ", ".join(each.__name__ for each in _KINDS if each is not type(None))
        raise Mistake(f"{what} is {annotation}, which calls cannot hold; use one of {known}")
    if kind == "array" and inner:
        return {"type": kind, "items": _schema(inner[0], what)}
    return {"type": kind}


def _kinds(schema: dict[str, Any]) -> list[str]:
    """The types that a schema allows; none where it allows all."""
    said = schema.get("type", [])
    return [said] if isinstance(said, str) else list(said)


def calculator() -> Tool:
    """``calc``: the value of an expression; see :func:`sterling.language.calculator.calculate`."""

    def calc(expression: str) -> str:
        """Compute the value of an arithmetic expression, such as 12*(7+3)."""
        return calculate(expression)

    return tool(calc)


def interpreter(limits: Limits | None = None) -> Tool:
    """``python``: a script run in a sandbox, by default for 2 s at most; its output, or why it has
    none."""
    limits = limits or Limits(seconds=2.0)

    def python(code: str) -> str:
        """Run Python code and return what it prints and the value of its last line."""
        outcome = run_python(code, limits)
        if outcome.verdict == "pass":
            return outcome.output.strip() or "(no output)"
        raise RuntimeError(f"{outcome.verdict}: {outcome.detail}")

    return tool(python)


def searcher(corpus: Corpus, count: int = 3) -> Tool:
    """``search``: the ``count`` best lines of a corpus."""

    def search(query: str) -> str:
        """Search a collection of texts and return the lines that match best."""
        return "\n".join(corpus.search(query, count)) or "nothing found"

    return tool(search)


def find(name: str) -> Tool:
    """A tool by name: ``calc``, ``python``, or ``search:FILE`` with a text file's lines."""
    if name.startswith("search:"):
        return searcher(Corpus.read(Path(name.removeprefix("search:"))))
    makers = {"calc": calculator, "python": interpreter}
    if name not in makers:
        known = "calc, python or search:FILE"
        raise Mistake(f"no tool is called {name!r}{hint(name, makers, f'it may be {known}')}")
    return makers[name]()


def registry(tools: Iterable[str | Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by name, from names, tools and functions; Mistake where two share a name."""
    found: dict[str, Tool] = {}
    for each in tools:
        made = find(each) if isinstance(each, str) else each if isinstance(each, Tool) else None
        made = made or tool(typing.cast(Callable[..., Any], each))
        if made.name in found or made.name == "tool_call":
            raise Mistake(f"a second tool is called {made.name!r}; rename one")
        found[made.name] = made
    return found


def calls(text: str, tools: Mapping[str, Tool]) -> list[Call]:
    """The calls in a response, in order; one that is begun but never closed is a faulty one."""
    names = "|".join(map(re.escape, ["tool_call", *tools]))
    found: list[Call] = []
    place = 0
    while begun := re.compile(f"<({names})>").search(text, place):
        name, start = begun[1], begun.end()
        end = text.find(f"</{name}>", start)
        if end < 0:
            return [*found, Call(name, {}, f"<{name}> is never closed")]
        inside, place = text[start:end].strip(), end + len(name) + 3
        found.append(_json_call(inside) if name == "tool_call" else _short(tools[name], inside))
    return found


def _json_call(inside: str) -> Call:
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


def _short(tool: Tool, inside: str) -> Call:
    """The text is the first argument: one of its values as they are written, or where it is not
    meant as text JSON."""
    properties = tool.parameters.get("properties", {})
    if not properties:
        return Call(tool.name, {})
    first, schema = next(iter(properties.items()))
    for value in schema.get("enum", []):
        if inside in (value, json.dumps(value)):
            return Call(tool.name, {first: value})
    if "string" in (_kinds(schema) or ["string"]):
        return Call(tool.name, {first: inside})
    try:
        return Call(tool.name, {first: json.loads(inside)})
    except (ValueError, RecursionError):
        return Call(tool.name, {}, f"{first} must be JSON")


def answer(call: Call, tools: Mapping[str, Tool]) -> tuple[bool, str]:
    """Carry out a call: whether it went well, and what the model is told, at most 2,000
    characters. Whatever is wrong with it is told as ``error: ...`` and never raised."""
    chosen = tools.get(call.name)
    fault = call.fault
    if not fault and chosen is None:
        fault = f"no tool is called {call.name!r}; there are {', '.join(tools)}"
    elif not fault and chosen is not None:
        fault = _fault(call.arguments, chosen.parameters)
    if fault or chosen is None:
        return False, f"error: {fault}"[:LONGEST]
    try:
        return True, str(chosen.run(**call.arguments))[:LONGEST]
    except Exception as error:  # whatever a tool raises is the model's to read
        return False, f"error: {error}"[:LONGEST]


def _fault(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """What is wrong with the arguments, or nothing."""
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in arguments:
            return f"{name} is missing"
    for name, value in arguments.items():
        if name not in known:
            return f"there is no argument {name!r}"
        if "enum" in known[name] and value not in known[name]["enum"]:
            return f"{name} must be one of {', '.join(map(str, known[name]['enum']))}"
        kinds = _kinds(known[name])
        if kinds and not any(_is(value, kind) for kind in kinds):
            return f"{name} must be {' or '.join(kinds)}"
    return ""


def _is(value: Any, kind: str) -> bool:
    """Whether a value is of JSON's ``kind``; to Python a truth is a whole number as well."""
    number = kind in ("integer", "number")
    return isinstance(value, _PYTHON[kind]) and not (number and isinstance(value, bool))
