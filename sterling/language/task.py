"""Tasks whose answers a program can judge: the task, its family, the verdict.

A family makes unlimited tasks from seeds and judges any response strictly. Everything here runs on
the host, in plain Python; models only see the token ids of prompts and responses.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol, runtime_checkable

from sterling.system.mistake import Mistake

VERIFIER_FAULTS = (  # of the verifier, not of the response; details may follow after a colon
    "verifier raised",
    "verifier away",
    "verifier hung",
    "verifier died",
    "verifier nonsense",
)
REASONS = (
    "right",
    "partly",  # a part of the task is solved
    "scored",  # by named rewards, none of which is called "right"
    "wrong",  # an answer in the right form
    "no answer",  # empty, or a thought that never ended
    "malformed",  # not in the family's answer form
    "forbidden",  # breaks a rule: writes to a database, uses a number twice
    "error",  # the executed code failed
    "timeout",
    "oom",  # out of memory
    "refused",  # there is no sandbox to run code in
    "program failed",  # an agent program crashed, or ran out of time, before it gave a reward
    *VERIFIER_FAULTS,
)
FULL = 1.0 - 1e-9  # the reward of a right answer, up to rounding


@dataclasses.dataclass(frozen=True)
class Task:
    """One question. All values are plain JSON, so that a task can be stored and sent."""

    family: str
    seed: int
    level: int
    prompt: str  # the user's message to the model
    answer: Any  # what ``verify`` needs to know
    system: str = ""  # a system message, if the family has one
    outcome: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """What a program that worked on it left, for a judge: see language/agent_programs."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement of a response. ``reward`` is any finite number (Mistake otherwise), usually 1
    for a right response; ``reason`` is one of a few short phrases that reports can count, such as
    those of :data:`REASONS`; ``rewards`` are the named ones that ``reward`` is made of, if any;
    ``right`` says whether the answer is right where the scene has decided that (None: the rewards
    say it)."""

    reward: float
    reason: str
    rewards: Mapping[str, float] = dataclasses.field(default_factory=dict, kw_only=True, hash=False)
    right: bool | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for reward in (self.reward, *self.rewards.values()):
            if not math.isfinite(reward):
                raise Mistake(f"a verdict's reward must be finite, not {reward}")

    @classmethod
    def of_rewards(cls, found: float | Mapping[str, float]) -> Verdict:
        """Return the verdict of a verifier that returned a number, or several with names: a number
        of at least 1 is right. Of named ones the one called "right" says so; the reward is their
        sum."""
        if not isinstance(found, Mapping):
            return cls(found, _reason(found))
        reason = _reason(found["right"]) if "right" in found else "scored"
        return cls(math.fsum(found.values()), reason, rewards=dict(found))

    def times(self, factor: float) -> Verdict:
        """Return the verdict with its rewards multiplied."""
        rewards = {name: factor * each for name, each in self.rewards.items()}
        return dataclasses.replace(self, reward=factor * self.reward, rewards=rewards)

    @property
    def verifier_failed(self) -> bool:
        """Whether the verifier failed: the verdict then says nothing about the response."""
        return self.reason.partition(":")[0] in VERIFIER_FAULTS


def _reason(reward: float) -> str:
    return "right" if reward >= FULL else "partly" if reward > 0.0 else "wrong"


def is_right(verdicts: Sequence[Verdict]) -> bool:
    """Whether an answer, of one turn or several, is right by its verdicts: the last reason is
    "right" (some worlds reward less after other answers), or the rewards called "right" (of
    verdicts without names: all their rewards) add up to 1."""
    if not verdicts:
        return False
    own = (one.rewards.get("right", 0.0) if one.rewards else one.reward for one in verdicts)
    return verdicts[-1].reason == RIGHT.reason or math.fsum(own) >= FULL


PROGRAM_FAILED = Verdict(0.0, "program failed")
RIGHT = Verdict(1.0, "right")
WRONG = Verdict(0.0, "wrong")
NO_ANSWER = Verdict(0.0, "no answer")
MALFORMED = Verdict(0.0, "malformed")


def fault_verdict(kind: str, detail: str) -> Verdict:
    """Return the verdict on a response whose judge's process gave none: "timeout" if it was killed
    at its time limit ("hung"), "oom" if it ended by itself ("died"), else that it raised."""
    return Verdict(0.0, {"hung": "timeout", "died": "oom"}.get(kind, f"verifier raised: {detail}"))


@runtime_checkable
class Family(Protocol):
    """A source of tasks of one kind, with their judge. A family with a limited number of tasks also
    offers ``count(level) -> int`` (:mod:`sterling.language.question_order`)."""

    name: str
    levels: range  # difficulties, from easy to hard

    def sample(self, seed: int, level: int) -> Task:
        """Return the task of this seed and level, always the same; Mistake for an unknown level."""
        ...

    def verify(self, task: Task, response: str) -> Verdict:
        """Judge a response to a task of this family; never raises, whatever the response is."""
        ...

    def solve(self, task: Task) -> str:
        """Return a response that gets reward 1, for demonstrations."""
        ...


@runtime_checkable
class BatchJudge(Protocol):
    """What judges several answers at a time."""

    def verify_batch(self, tasks: Sequence[Task], responses: Sequence[str]) -> list[Verdict]:
        """Judge a response to each task; never raises, whatever they are."""
        ...


def batch_judge(family: Family, task: Task) -> BatchJudge | None:
    """Return what judges a task's answers together with others, which a family tells by its
    ``batch_judge(task)``; None if ``family.verify`` judges each by itself."""
    own = getattr(family, "batch_judge", None)
    return own(task) if own else None


def judges_elsewhere(family: Family, task: Task) -> bool:
    """Whether a task is judged outside of this process, so that several verdicts can be waited for
    at once, in threads: a family tells it by ``judges_elsewhere(task)``."""
    own = getattr(family, "judges_elsewhere", None)
    return bool(own and own(task))


def task_random(family: str, seed: int, level: int) -> Random:
    """Return the random number generator of one task; it gives the same numbers on every
    machine."""
    return Random(f"{family}/{level}/{seed}")


def check_level(family: str, levels: range, level: int) -> None:
    """Raise Mistake if the family does not have the level."""
    if level not in levels:
        raise Mistake(f"{family} has levels {levels[0]} to {levels[-1]}, not {level}")


def has_half_character(text: str) -> bool:
    """Whether the text holds half a character (a lone surrogate, such as ``\\ud83d``), which no
    tokenizer and no file can."""
    return any("\ud800" <= each <= "\udfff" for each in text)


def final_answer(response: str) -> str:
    r"""Return the final answer of a response; empty if it has none.

    Thoughts do not count: all text before a last ``</think>`` (a ``<think>`` that never ends leaves
    no answer). Then: the inside of the last ``<answer>...</answer>`` if there is one; in that, the
    inside of the last ``\boxed{...}``, else the text after the last ``####``, else all of it,
    without surrounding blanks. Takes time linear in the response's length.
    """
    text = _inside_answer_tags(without_thoughts(response))
    boxed = text.rfind("\\boxed{")
    if boxed >= 0:
        return _inside_braces(text, boxed + len("\\boxed{")).strip()
    return text.rpartition("####")[2].strip()


def code_answer(response: str) -> str:
    """Return the code that a response answers with. As :func:`final_answer`, but ``####`` and
    braces, which mean something else in code, have no role: it is the last fenced block of the
    answer if there is one, else all of it."""
    text = _inside_answer_tags(without_thoughts(response)).strip()
    body, fence, _ = text.rpartition("```")
    if not fence:
        return text
    body, fence, inside = body.rpartition("```")
    if not fence:
        return ""  # a block that never ends
    language, newline, code = inside.partition("\n")
    return (code if newline and language.strip().isalnum() else inside).strip()


def without_thoughts(response: str) -> str:
    """Return the response without its thoughts: all text before a last ``</think>`` is a thought,
    and so is a whole response whose ``<think>`` never ends. In every world only the rest counts."""
    _, end, spoken = response.rpartition("</think>")
    text = spoken if end else response
    return "" if "<think>" in text else text


def _inside_answer_tags(text: str) -> str:
    before, end, _ = text.rpartition("</answer>")
    inside = before.rpartition("<answer>")
    return inside[2] if end and inside[1] else text


def _inside_braces(text: str, start: int) -> str:
    """Return the text before the brace that closes one opened just before ``start``."""
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start:place]
    return ""
