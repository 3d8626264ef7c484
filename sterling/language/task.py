"""Questions whose answers a program can judge: the task, its family, the verdict.

A family poses unlimited tasks from seeds and judges any response strictly. Everything here runs
on the host, in plain Python; models only see the token ids of prompts and responses.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any, Protocol, runtime_checkable

from sterling.types import Mistake

FAULTS = (  # of the verifier, not of the response; what happened may follow after a colon
    "verifier raised",
    "verifier hung",
    "verifier died",
    "verifier nonsense",
)
REASONS = (
    "right",
    "partly",  # some of what was asked
    "wrong",  # an answer in the right form
    "no answer",  # nothing there, or thinking that never ended
    "malformed",  # not in the family's answer form
    "forbidden",  # tries what it must not: to write, to use a number twice
    "error",  # what was executed failed
    "timeout",
    "oom",  # out of memory
    "refused",  # there is no sandbox to run code in
    *FAULTS,
)


@dataclasses.dataclass(frozen=True)
class Task:
    """One question; plain JSON values only, so that it can be stored and sent."""

    family: str
    seed: int
    level: int
    prompt: str  # what the model is asked: the user's message
    answer: Any  # what ``verify`` needs to know
    system: str = ""  # a system message, where the family has one


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a response is worth. ``reward`` is in [0, 1] (Mistake otherwise); ``reason`` is one of
    a few short words that reports can count, such as those of :data:`REASONS`."""

    reward: float
    reason: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.reward <= 1.0:  # NaN is refused as well
            raise Mistake(f"a verdict's reward is in [0, 1], not {self.reward}")

    @property
    def faulty(self) -> bool:
        """Whether the verifier failed, which says nothing of the response."""
        return self.reason.partition(":")[0] in FAULTS


RIGHT = Verdict(1.0, "right")
WRONG = Verdict(0.0, "wrong")
NOTHING = Verdict(0.0, "no answer")
MALFORMED = Verdict(0.0, "malformed")


def unjudged(kind: str, detail: str) -> Verdict:
    """Return the verdict on a response whose judge's process gave none: "timeout" where it was
    killed at its time limit ("hung"), "oom" where it ended ("died"), else that it raised."""
    return Verdict(0.0, {"hung": "timeout", "died": "oom"}.get(kind, f"verifier raised: {detail}"))


@runtime_checkable
class Family(Protocol):
    """A source of tasks of one kind, with their judge. One whose tasks have an end also offers
    ``count(level) -> int`` (:mod:`sterling.language.posing`)."""

    name: str
    levels: range  # difficulties it knows, from easy to hard

    def sample(self, seed: int, level: int) -> Task:
        """The task of this seed and level, always the same; Mistake for an unknown level."""
        ...

    def verify(self, task: Task, response: str) -> Verdict:
        """Judge a response to a task of this family; never raises, whatever the response is."""
        ...

    def solve(self, task: Task) -> str:
        """A response that gets reward 1, for demonstrations."""
        ...


def dice(family: str, seed: int, level: int) -> Random:
    """The random numbers of one task; the same on every machine."""
    return Random(f"{family}/{level}/{seed}")


def check_level(family: str, levels: range, level: int) -> None:
    """Raise Mistake where the family does not know the level."""
    if level not in levels:
        raise Mistake(f"{family} has levels {levels[0]} to {levels[-1]}, not {level}")


def final_answer(response: str) -> str:
    r"""What a response answers in the end; empty where it answers nothing.

    What was thought before a last ``</think>`` does not count (a ``<think>`` that never ends
    leaves no answer). Then: the inside of the last ``<answer>...</answer>`` if there is one; in
    that, the inside of the last ``\boxed{...}``, else what follows the last ``####``, else all
    of it, without blanks around it. Takes time linear in the response's length.
    """
    text = _tagged(aloud(response))
    boxed = text.rfind("\\boxed{")
    if boxed >= 0:
        return _braces(text, boxed + len("\\boxed{")).strip()
    return text.rpartition("####")[2].strip()


def code_answer(response: str) -> str:
    """As :func:`final_answer`, for code, in which ``####`` and braces mean something else: the
    last fenced block of the answer if there is one, else all of it."""
    text = _tagged(aloud(response)).strip()
    body, fence, _ = text.rpartition("```")
    if not fence:
        return text
    body, fence, inside = body.rpartition("```")
    if not fence:
        return ""  # a block that never ends
    language, newline, code = inside.partition("\n")
    return (code if newline and language.strip().isalnum() else inside).strip()


def aloud(response: str) -> str:
    """What a response says after what it thinks: what stands before a last ``</think>`` is thought,
    and so is all of one whose ``<think>`` never ends. In every world only this counts."""
    _, end, spoken = response.rpartition("</think>")
    text = spoken if end else response
    return "" if "<think>" in text else text


def _tagged(text: str) -> str:
    before, end, _ = text.rpartition("</answer>")
    inside = before.rpartition("<answer>")
    return inside[2] if end and inside[1] else text


def _braces(text: str, start: int) -> str:
    """What stands before the brace that closes one opened just before ``start``."""
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start:place]
    return ""
