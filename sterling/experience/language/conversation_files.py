"""Read conversations and preference pairs from files of JSON lines, in the forms that other
libraries write (TRL's dataset formats).

Conversations, one in each line::

    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    {"prompt": "hi", "response": "hello"}       also question; completion or answer

A plain text, without roles, is no conversation, and is read as it is::

    {"text": "Once upon a time ..."}

Preference pairs::

    {"prompt": "hi", "chosen": "hello", "rejected": "go away"}
    {"chosen": [...messages], "rejected": [...messages]}

A prompt, a completion, ``chosen`` and ``rejected`` may each be a list of messages too. Without a
prompt, what ``chosen`` and ``rejected`` share at their beginning is the prompt: messages, the
turns of a text "\\n\\nHuman: ...\\n\\nAssistant: ...", or else whole words. ``system`` is a system
message before all others. ``conversations`` with ``from`` and ``value`` is read as ``messages``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.language.chat_template import ROLES
from sterling.language.jsonl_records import check_characters, check_text, read_objects
from sterling.language.scene import Message
from sterling.types import Mistake

Messages = tuple[Message, ...]

CONVERSATIONS = ("messages", "conversations")
PROMPTS = ("prompt", "question")
ANSWERS = ("response", "completion", "answer")
PLAIN = "text"
JUDGED = "label"  # whether an answer is desirable, in TRL's unpaired data for KTO
CONVERSATION_FORMS = (
    'Write {"messages": [{"role": "user", "content": ...}, {"role": "assistant", "content": ...}]}'
    ' or {"prompt": ..., "response": ...}; question is read as prompt, and completion or answer '
    'as response; {"text": ...} is a plain text, of which every token is learned'
)
PAIR_FORMS = (
    'Write {"prompt": ..., "chosen": ..., "rejected": ...}; question is read as prompt, each may '
    "be a list of messages, and the prompt may stand in both chosen and rejected instead"
)
SHORT_ROLES = {"human": "user", "gpt": "assistant"}  # of ShareGPT's conversations
_SPEAKER = re.compile(r"\n\n(Human|Assistant):")  # of a dialogue that is one text


def read_conversations(path: str | Path) -> list[Messages | str]:
    """Return the conversations of a file; each begins with another role than the assistant, and
    ends with the assistant's last message. A plain text is returned as a string.

    Raises :class:`Mistake` as :func:`sterling.language.jsonl_records.read_objects` does,
    and for a record in none of the forms, with its columns.
    """
    found, name = list[Messages | str](), Path(path).name
    for number, (line, record) in enumerate(read_objects(path, CONVERSATION_FORMS), start=1):
        place = f"{name}, record {number}"
        system = _system(record, place)
        whole, answer = _column(record, CONVERSATIONS), _column(record, ANSWERS)
        if whole:
            messages = _read_messages(record[whole], whole, place)
        elif answer and _column(record, PROMPTS):
            answers = _as_messages(record[answer], answer, "assistant", place)
            messages = (*_prompt(record, place), *answers)
            if record.get(JUDGED) is False:
                raise Mistake(
                    f"{place}: its label is false: an answer to avoid, which sft would imitate. "
                    "Remove such records"
                )
        elif PLAIN in record and not (system or answer or _column(record, PROMPTS)):
            found.append(_text(record[PLAIN], PLAIN, place))
            continue
        else:
            raise Mistake(f"{line} is no conversation: {_columns(record)}. {CONVERSATION_FORMS}")
        found.append(_checked((*system, *messages), place))
    return found


def opening_of(text: Messages | str) -> Messages:
    """Return a conversation's messages before the first answer; a plain text is one message."""
    if isinstance(text, str):
        return (Message("user", text),)
    return tuple(itertools.takewhile(lambda each: each.role != "assistant", text))


def read_comparisons(path: str | Path) -> list[tuple[Messages, str, str]]:
    """Return the preference pairs of a file: the conversation before the answers, the preferred
    answer, and the rejected one.

    Raises :class:`Mistake` as :func:`read_conversations` does, and for two equal answers and
    conversations that differ in more than the last answer.
    """
    pairs, name = [], Path(path).name
    for number, (line, record) in enumerate(read_objects(path, PAIR_FORMS), start=1):
        place = f"{name}, record {number}"
        missing = [each for each in ("chosen", "rejected") if each not in record]
        if missing:
            raise Mistake(
                f"{line} {_not_a_pair(record, missing)}: {_columns(record)}. {PAIR_FORMS}"
            )
        opening, chosen, rejected = _split_pair(record, place)
        opening = (*_system(record, place), *opening)
        _checked((*opening, Message("assistant", chosen)), place)
        pairs.append((opening, chosen, rejected))
    return pairs


def _not_a_pair(record: dict[str, Any], missing: list[str]) -> str:
    """Return in words what a record is that lacks one answer or both."""
    only_sft = "from which only sft learns"
    if len(missing) == 1 or not _column(record, (*CONVERSATIONS, *ANSWERS, PLAIN)):
        return f"has no {' and no '.join(map(repr, missing))}"
    if JUDGED in record and _column(record, ANSWERS):
        return (
            f"is a judgement of one answer ({JUDGED}), and dpo, also with loss=kto, and reward "
            "learn from two answers to each prompt"
        )
    if _column(record, (*CONVERSATIONS, *ANSWERS)):
        return f"is a conversation, {only_sft}"
    return f"is a plain text, {only_sft}"


def _split_pair(record: dict[str, Any], place: str) -> tuple[Messages, str, str]:
    """Return a pair's prompt and its two answers."""
    if record["chosen"] == record["rejected"]:
        raise Mistake(f"{place}: both answers are the same; remove this record")
    given = [record[name] for name in ("chosen", "rejected")]
    if _column(record, PROMPTS) or not all(isinstance(each, str) for each in given):
        return _split_conversations(
            _as_answered(record, "chosen", place), _as_answered(record, "rejected", place), place
        )
    chosen, rejected = _text(given[0], "chosen", place), _text(given[1], "rejected", place)
    if _SPEAKER.match(chosen) and _SPEAKER.match(rejected):
        return _split_conversations(_read_dialogue(chosen), _read_dialogue(rejected), place)
    return _split_texts(chosen, rejected, place)


def _as_answered(record: dict[str, Any], name: str, place: str) -> Messages:
    """Return a column's conversation, with the prompt before it if it is an answer alone."""
    messages = _as_messages(record[name], name, "assistant", place)
    if messages[0].role != "assistant":
        return messages
    return (*_prompt(record, place), *messages)


def _split_conversations(
    chosen: Messages, rejected: Messages, place: str
) -> tuple[Messages, str, str]:
    """Return the messages that both share, and the last answer of each."""
    count = _shared_length(chosen, rejected)
    ends = (chosen[count:], rejected[count:])
    if not all(len(end) == 1 and end[0].role == "assistant" for end in ends):
        raise Mistake(
            f"{place}: chosen and rejected must be one conversation up to a last message of the "
            "assistant, in which they differ"
        )
    return chosen[:count], ends[0][0].content, ends[1][0].content


def _split_texts(chosen: str, rejected: str, place: str) -> tuple[Messages, str, str]:
    """Return the whole words that both texts begin with as the prompt, and the rest of each."""
    shared = chosen[: _shared_length(chosen, rejected)]
    cut = max(shared.rfind(" "), shared.rfind("\n"), 0)
    prompt, *answers = (text.strip() for text in (chosen[:cut], chosen[cut:], rejected[cut:]))
    if not prompt or not all(answers):
        raise Mistake(
            f"{place}: there is no prompt, and chosen and rejected do not begin with the same "
            f"words. {PAIR_FORMS}"
        )
    return (Message("user", prompt),), answers[0], answers[1]


def _shared_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many elements two sequences share at their beginning."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read_dialogue(text: str) -> Messages:
    """Return the messages of a text "\\n\\nHuman: ...\\n\\nAssistant: ..."."""
    _, *parts = _SPEAKER.split(text)
    roles = {"Human": "user", "Assistant": "assistant"}
    spoken = zip(parts[::2], parts[1::2], strict=True)
    return tuple(Message(roles[who], content.strip()) for who, content in spoken)


def _prompt(record: dict[str, Any], place: str) -> Messages:
    name = _column(record, PROMPTS)
    if not name:
        raise Mistake(f"{place}: the answers have no prompt before them. {PAIR_FORMS}")
    return _as_messages(record[name], name, "user", place)


def _system(record: dict[str, Any], place: str) -> Messages:
    if record.get("tools"):
        raise Mistake(
            f"{place}: the column 'tools' is not read; describe the tools in the system message"
        )
    system = record.get("system", "")
    if not isinstance(system, str):
        raise Mistake(f"{place}: 'system' must be a text")
    check_characters(system, "system", place)
    return (Message("system", system),) if system else ()


def _as_messages(value: Any, name: str, role: str, place: str) -> Messages:
    """Return a list of messages, or a text as one message of ``role``."""
    if isinstance(value, list):
        return _read_messages(value, name, place)
    return (Message(role, _text(value, name, place)),)


def _read_messages(value: Any, name: str, place: str) -> Messages:
    """Return the messages of a list of ``{"role": ..., "content": ...}``."""
    form = f'{place}: {name!r} must be a list of {{"role": ..., "content": ...}}'
    if not isinstance(value, list) or not value or not all(isinstance(x, dict) for x in value):
        raise Mistake(form)
    found = []
    for each in value:
        given = each.get("role", each.get("from"))
        role = SHORT_ROLES.get(given, given) if isinstance(given, str) else given
        if role not in ROLES:
            raise Mistake(f"{form}; a role is one of {', '.join(ROLES)}, not {given!r:.40}")
        if each.get("tool_calls"):
            raise Mistake(f"{place}: tool_calls are not read; write the calls into the content")
        content = _text(each.get("content", each.get("value")), f"content of {role}", place)
        found.append(Message(role, content))
    return tuple(found)


def _text(value: Any, name: str, place: str) -> str:
    text = check_text(value, name, place)
    check_characters(text, name, place)
    return text


def _checked(messages: Messages, place: str) -> Messages:
    """Return a conversation up to the assistant's last message; Mistake if the assistant begins
    it, says nothing, or speaks twice in a row."""
    roles = [each.role for each in messages]
    if "assistant" not in roles:
        raise Mistake(f"{place}: the assistant says nothing, so there is nothing to learn")
    if roles[0] == "assistant":
        raise Mistake(f"{place}: the assistant begins; put a message of the user before it")
    if ("assistant", "assistant") in itertools.pairwise(roles):
        raise Mistake(f"{place}: the assistant speaks twice in a row; join the two messages")
    return messages[: len(roles) - roles[::-1].index("assistant")]


def _column(record: dict[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of the columns that a record has; empty if it has none."""
    return next((name for name in names if name in record), "")


def _columns(record: dict[str, Any]) -> str:
    return f"its columns are {', '.join(record) or 'none'}"
