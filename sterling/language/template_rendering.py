"""Render chat templates: Jinja programs with what transformers offers them, in Jinja's sandbox.

Imports nothing of Sterling, because it also runs in a process of its own
(:mod:`sterling.language.chat_template`).
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_CHARACTERS = 2**22  # of a conversation
MAX_ERROR_CHARACTERS = 200  # of an error message


def make_answerer(_: None) -> Callable[[list[Any]], tuple[str, str]]:
    """Return the function that renders ``[source, variables]``; called in a process of its own."""
    return lambda question: render_template(*question)


def render_template(source: str, known: dict[str, Any] | None) -> tuple[str, str]:
    """Return the text of a template and no error, or no text and the error in one line; with
    ``known`` None the template is only parsed."""
    try:
        program = _compile_template(source)
        text = "" if known is None else program.render(**known)
    except Exception as error:  # a template can raise anything that Python raises
        message = " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
        return "", message if message and isinstance(error, TemplateError) else _describe_error(
            error, message
        )
    long = f"it makes {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed"
    return ("", long) if len(text) > MAX_CHARACTERS else (text, "")


def _describe_error(error: Exception, message: str) -> str:
    if isinstance(error, MemoryError):
        return "it takes more memory than a template may use"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


@functools.lru_cache(maxsize=16)
def _compile_template(source: str) -> Template:
    return _jinja_environment().from_string(source)


class _SafeNamespace(Namespace):
    """A template's variables, whose names must not begin with underscores: these would reach into
    Python itself."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise TemplateError(f"a template may not set {name!r}")
        super().__setitem__(name, value)


class _GenerationTag(Extension):
    """The tag {% generation %} ... {% endgeneration %}, which marks what the assistant says, and
    renders it unchanged."""

    tags = {"generation"}  # noqa: RUF012, as Jinja has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body of the tag alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@functools.cache
def _jinja_environment() -> ImmutableSandboxedEnvironment:
    """Return Jinja with the filters and functions that transformers' templates may use."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    made.filters["tojson"] = _to_json
    made.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "namespace": _SafeNamespace,
    }
    made.globals["dict"] = _make_dict
    return made


def _to_json(value: Any, ensure_ascii: bool = False, **style: Any) -> str:
    """Return plain JSON; Jinja's own filter escapes it for web pages."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **style)


def _make_dict(*pairs: Any, **named: Any) -> dict[str, Any]:
    """Return a dict. A function, because the class itself would lead a template into Python."""
    return dict(*pairs, **named)


def _strftime_now(style: str) -> str:
    return datetime.datetime.now().strftime(style)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
