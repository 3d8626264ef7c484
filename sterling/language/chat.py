"""Chat templates: how a conversation is written down as one text.

Templates are Jinja programs that come with a model, so they are run as Hugging Face's transformers
runs them (what is rendered here is what a server renders), and in Jinja's sandbox.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from sterling.language.scene import Message
from sterling.types import Mistake

ROLES = ("system", "user", "assistant", "tool")

# Of models that have no template: roles and what was said on lines of their own. The end token
# closes what the assistant says, so that it knows when to stop.
PLAIN = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}"
    "{{ message['role'] + ':\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)

# Of our own tokenizers: one token for each role, one at the end of what the assistant says.
SHORT = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('there is no role ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


CALL = "<tool_call>"  # how calls are written that worlds with tools read
HOW = f'Call one with {CALL}{{"name": ..., "arguments": {{...}}}}</tool_call>.'


class Template:
    """A chat template that is ready to use.

    ``source`` is Jinja, ``tokens`` the special tokens that it may name (bos_token, ...), ``name``
    what error messages call it. Raises :class:`Mistake` where the template is not valid.
    """

    def __init__(self, source: str, tokens: dict[str, str | None], name: str):
        self.source = source
        self._tokens = {name: token for name, token in tokens.items() if token is not None}
        self._name = name
        try:
            self._program = _environment().from_string(source)
        except TemplateError as error:
            raise Mistake(f"{name} cannot be read ({error}); use the model's own") from error

    def render(self, messages: Sequence[Message], reply: bool) -> str:
        """The conversation as a text; with ``reply`` it ends where the assistant's turn begins.

        Tools are handed to a template that asks for calls in the form that is read here; one that
        knows no tools, or has them called otherwise (Llama 3's), shows a description in words.
        Raises :class:`Mistake` for conversations that the template refuses.
        """
        if "tools" not in self.source or CALL not in self.source:
            messages = [_described(each) if each.tools else each for each in messages]
        tools = [json.loads(text) for each in messages for text in each.tools] or None
        whole = [each for each in messages if each.content or not each.tools]
        said = [{"role": each.role, "content": each.content} for each in whole]
        known = {"messages": said, "add_generation_prompt": reply, "documents": None}
        known["tools"] = tools
        try:
            return self._program.render(**self._tokens, **known)
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            roles = ", ".join(each.role for each in messages) or "no messages"
            raise Mistake(
                f"{self._name} refuses a conversation of {roles} ({error}); use another template"
            ) from error

    def opened(self) -> str:
        """What stands between what a user said and what the assistant says; nothing where the
        template refuses a user's question alone, or does not show it."""
        mark = "mark"
        while mark in self.source:
            mark += "mark"
        try:
            text = self.render([Message("user", mark)], reply=True)
        except Mistake:
            return ""
        _, found, rest = text.rpartition(mark)
        return rest if found else ""

    def after(self, messages: Sequence[Message]) -> str:
        """All that follows what the assistant said, when ``messages`` come next and then the
        assistant again; with no messages, what closes its turn.

        Found in a conversation made up for it, so that how a template retells earlier turns
        (Qwen3's leaves out what was thought) does not matter.
        """
        mark = "mark"
        while any(mark in each.content for each in messages) or mark in self.source:
            mark += "mark"
        made_up = [Message("user", "hello"), Message("assistant", mark), *messages]
        text = self.render(made_up, reply=bool(messages))
        _, found, rest = text.rpartition(mark)
        if not found:
            raise Mistake(f"{self._name} does not show what the assistant said; use another")
        return rest


def _described(message: Message) -> Message:
    """The message with its tools told in words."""
    first = [message.content] if message.content else []
    return Message(message.role, "\n".join([*first, "You have tools.", *message.tools, HOW]))


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
