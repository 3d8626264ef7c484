"""Chat templates: how a conversation is written as one text.

Templates are Jinja programs that come with a model. They run as Hugging Face's transformers runs
them (the text is the one that a server renders), in Jinja's sandbox, and in a process with a memory
limit that is killed at a time limit: ``{{ 'a' * 10**10 }}`` is a template as well. Our own two
templates are known to be quick and run in this process.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from sterling.language import template_rendering
from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.scene import Message
from sterling.system.mistake import Mistake

SECONDS = 5.0  # time limit of one conversation, after which the process is killed
MEMORY = 2**30  # bytes that this process may use
CACHED_TEXTS = 1024  # conversations whose rendered texts are cached
ROLES = ("system", "user", "assistant", "tool")

# For models without a template: each role, and each message, on a line of its own. The end token
# closes what the assistant says, so that it learns when to stop.
PLAIN_TEMPLATE = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}"
    "{{ message['role'] + ':\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)

# For our own tokenizers: one token for each role, and one at the end of what the assistant says.
SHORT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('there is no role ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


TOOL_CALL = "<tool_call>"  # how a call begins in the form that worlds with tools read
HOW_TO_CALL = f'Call one with {TOOL_CALL}{{"name": ..., "arguments": {{...}}}}</tool_call>.'


class ChatTemplate:
    """A chat template, ready to render conversations.

    ``source`` is Jinja, ``tokens`` are the special tokens that it may name (bos_token, ...),
    ``name`` is for errors. Raises :class:`Mistake` if the template is not valid.
    """

    def __init__(self, source: str, tokens: dict[str, str | None], name: str):
        self.source = source
        self._tokens = {name: token for name, token in tokens.items() if token is not None}
        self._name = name
        self._cached_render = functools.lru_cache(CACHED_TEXTS)(
            self._render
        )  # a group repeats one question
        if fault := self._ask(None)[1]:
            raise Mistake(f"{name} cannot be read ({fault}); use the model's own template")

    def render(self, messages: Sequence[Message], reply: bool) -> str:
        """Return the conversation as a text; with ``reply`` it ends where the assistant's turn
        begins.

        Tools are handed to a template that asks for calls in the form that is read here. For one
        that has no tools, or another form of calls (Llama 3's), they are described in words. Raises
        :class:`Mistake` for conversations that the template refuses, and if it takes more time or
        memory than a template may.
        """
        dated = "strftime_now" in self.source  # its text changes with the date: not cached
        return (self._render if dated else self._cached_render)(tuple(messages), reply)

    def _render(self, messages: Sequence[Message], reply: bool) -> str:
        if "tools" not in self.source or TOOL_CALL not in self.source:
            messages = [_with_tools_in_words(each) if each.tools else each for each in messages]
        tools = [json.loads(text) for each in messages for text in each.tools] or None
        whole = [each for each in messages if each.content or not each.tools]
        turns = [{"role": each.role, "content": each.content} for each in whole]
        known = {"messages": turns, "add_generation_prompt": reply, "documents": None}
        known["tools"] = tools
        text, fault = self._ask({**self._tokens, **known})
        if fault:
            roles = ", ".join(each.role for each in messages) or "no messages"
            raise Mistake(
                f"{self._name} refuses a conversation of {roles} ({fault}); use another template"
            )
        return text

    def _ask(self, known: dict[str, Any] | None) -> tuple[str, str]:
        """Return the rendered text and what is wrong; with ``known`` None the template is only
        parsed."""
        if self.source in (PLAIN_TEMPLATE, SHORT_TEMPLATE):
            return template_rendering.render_template(self.source, known)
        try:
            text, fault = _worker().ask([self.source, known], SECONDS)
        except WorkerFault as error:
            late = f"it takes longer than {SECONDS:g} seconds"
            large = f"it takes more than {MEMORY / 2**30:g} GiB of memory"
            return "", {"hung": late, "died": large}.get(error.kind, error.detail)
        return str(text), str(fault)

    def reply_prefix(self) -> str:
        """Return the text between a user's message and the assistant's answer; empty if the
        template refuses a single message of a user, or does not show it."""
        mark = "mark"
        while mark in self.source:
            mark += "mark"
        try:
            text = self.render([Message("user", mark)], reply=True)
        except Mistake:
            return ""
        _, found, rest = text.rpartition(mark)
        return rest if found else ""

    def text_after_reply(self, messages: Sequence[Message]) -> str:
        """Return the text that follows the assistant's message, when ``messages`` come next and
        then the assistant again; without messages, the text that closes its turn.

        It is taken from a made-up conversation, so it does not matter how a template repeats
        earlier turns (Qwen3's leaves out thoughts).
        """
        mark = "mark"
        while any(mark in each.content for each in messages) or mark in self.source:
            mark += "mark"
        made_up = [Message("user", "hello"), Message("assistant", mark), *messages]
        text = self.render(made_up, reply=bool(messages))
        _, found, rest = text.rpartition(mark)
        if not found:
            raise Mistake(
                f"{self._name} does not show what the assistant said; use another template"
            )
        return rest


def _with_tools_in_words(message: Message) -> Message:
    """Return the message with its tools described in words."""
    first = [message.content] if message.content else []
    return Message(
        message.role, "\n".join([*first, "You have tools.", *message.tools, HOW_TO_CALL])
    )


@functools.cache
def _worker() -> Worker:
    return Worker("sterling.language.template_rendering:make_answerer", None, SECONDS, MEMORY)
