"""Chat templates: how a conversation is written down as one text.

Templates are Jinja programs that come with a model, so they are run as Hugging Face's transformers
runs them (what is rendered here is what a server renders), in Jinja's sandbox, and in a process
with a limit of memory that is killed at a time limit: ``{{ 'a' * 10**10 }}`` is a template as well.
Our own two are known to be quick and run here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from sterling.language import rendering
from sterling.language.adapters.worker import Fault, Worker
from sterling.language.scene import Message
from sterling.types import Mistake

SECONDS = 5.0  # for one conversation; the process is killed after so many
MEMORY = 2**30  # bytes of that process
KEPT = 1024  # conversations whose texts are remembered
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
        self._kept = functools.lru_cache(KEPT)(self._render)  # a group asks one question often
        if fault := self._ask(None)[1]:
            raise Mistake(f"{name} cannot be read ({fault}); use the model's own")

    def render(self, messages: Sequence[Message], reply: bool) -> str:
        """The conversation as a text; with ``reply`` it ends where the assistant's turn begins.

        Tools are handed to a template that asks for calls in the form that is read here; one that
        knows no tools, or has them called otherwise (Llama 3's), shows a description in words.
        Raises :class:`Mistake` for conversations that the template refuses, and where it takes more
        time or memory than templates may.
        """
        dated = "strftime_now" in self.source  # then it is not always the same text
        return (self._render if dated else self._kept)(tuple(messages), reply)

    def _render(self, messages: Sequence[Message], reply: bool) -> str:
        if "tools" not in self.source or CALL not in self.source:
            messages = [_described(each) if each.tools else each for each in messages]
        tools = [json.loads(text) for each in messages for text in each.tools] or None
        whole = [each for each in messages if each.content or not each.tools]
        said = [{"role": each.role, "content": each.content} for each in whole]
        known = {"messages": said, "add_generation_prompt": reply, "documents": None}
        known["tools"] = tools
        text, fault = self._ask({**self._tokens, **known})
        if fault:
            roles = ", ".join(each.role for each in messages) or "no messages"
            raise Mistake(
                f"{self._name} refuses a conversation of {roles} ({fault}); use another template"
            )
        return text

    def _ask(self, known: dict[str, Any] | None) -> tuple[str, str]:
        """What is rendered, and what is wrong; without what the template may name it is only
        read."""
        if self.source in (PLAIN, SHORT):
            return rendering.render(self.source, known)
        try:
            text, fault = _worker().ask([self.source, known], SECONDS)
        except Fault as error:
            late = f"it takes longer than {SECONDS:g} seconds"
            large = f"it takes more than {MEMORY / 2**30:g} GiB of memory"
            return "", {"hung": late, "died": large}.get(error.kind, error.detail)
        return str(text), str(fault)

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


@functools.cache
def _worker() -> Worker:
    return Worker("sterling.language.rendering:answering", None, SECONDS, MEMORY)
