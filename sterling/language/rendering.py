"""Jinja programs of chat templates, run: what transformers offers them, in Jinja's sandbox.

Imports nothing of Sterling: it also runs in a process of its own (:mod:`sterling.language.chat`).
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

LONGEST = 2**22  # characters of a conversation
SHOWN = 200  # characters of what is wrong


def answering(_: None) -> Callable[[list[Any]], tuple[str, str]]:
    """Return what renders ``[source, what it may name]``. Called in a process of its own."""
    return lambda question: render(*question)


def render(source: str, known: dict[str, Any] | None) -> tuple[str, str]:
    """Return the text of a template, or else what is wrong with it, in one line; with ``known``
    None it is only read."""
    try:
        program = _program(source)
        text = "" if known is None else program.render(**known)
    except Exception as error:  # a template may fail in every way that Python can
        said = " ".join(str(error).split())[:SHOWN]
        return "", said if said and isinstance(error, TemplateError) else _kind(error, said)
    long = f"it makes {len(text):,} characters; at most {LONGEST:,} are read"
    return ("", long) if len(text) > LONGEST else (text, "")


def _kind(error: Exception, said: str) -> str:
    if isinstance(error, MemoryError):
        return "it takes more memory than templates may"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


@functools.lru_cache(maxsize=16)
def _program(source: str) -> Template:
    return _environment().from_string(source)


class _Names(Namespace):
    """A template's variables; names with underscores would reach into Python itself."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise TemplateError(f"a template may not set {name!r}")
        super().__setitem__(name, value)


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks what the assistant says, and writes it."""

    tags = {"generation"}  # noqa: RUF012, as Jinja has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja with what transformers' templates may use."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    made.filters["tojson"] = _to_json
    made.globals |= {"raise_exception": _raise, "strftime_now": _now, "namespace": _Names}
    made.globals["dict"] = _dict
    return made


def _to_json(value: Any, ensure_ascii: bool = False, **style: Any) -> str:
    """JSON as it is; Jinja's own filter writes it for web pages."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **style)


def _dict(*pairs: Any, **named: Any) -> dict[str, Any]:
    """dict as a function: the class itself would lead a template into Python."""
    return dict(*pairs, **named)


def _now(style: str) -> str:
    return datetime.datetime.now().strftime(style)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
