"""Text under constraints, and JSON."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from random import Random
from typing import Any

from sterling.language.task import MALFORMED, RIGHT, WRONG, Task, Verdict, code_answer
from sterling.language.tasks.puzzle import Puzzle

WORDS = (
    *("sun", "moon", "star", "tree", "river", "stone", "bird", "fish", "wolf", "bear", "cloud"),
    *("rain", "snow", "wind", "fire", "sand", "gold", "iron", "silk", "salt", "milk", "corn"),
    *("red", "blue", "green", "black", "white", "old", "new", "warm", "cold", "high", "low"),
)
ENDINGS = ("!", "?", "...", " amen")


class Instructions(Puzzle):
    """A text under constraints: ``write 3 words; include red; end with !`` -> ``red sun moon!``.

    The answer is any text that keeps them; words are what stands between blanks. Constraints:
    ``write N words``, ``include W`` (as a part, in any case), ``no letter X`` (in no case),
    ``start with W``, ``end with E``, ``all upper case`` or ``all lower case``. The reward is the
    share of constraints that are kept ("partly" between 0 and 1). Levels 0 to 3: 1, 2, 3 and 5
    constraints. Prompt 10-16, 23-32, 36-47, 67-77 characters; demonstrated answer 8-49.
    """

    name = "instructions"
    counts = (1, 2, 3, 5)
    levels = range(len(counts))

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Constraints that a text is known to keep; that text."""
        words = random.sample(WORDS, random.randint(2, 8))
        ending, case = random.choice(ENDINGS), random.choice(("upper", "lower"))
        text = f"{' '.join(words)}{ending}"
        missing = [x for x in string.ascii_lowercase if x not in text]
        asked: dict[str, Any] = {
            "words": len(text.split()),
            "include": random.choice(words),
            "avoid": random.choice(missing),
            "start": words[0],
            "end": ending.strip(),
            "case": case,
        }
        if case == "upper":
            text = text.upper()
            asked |= {"start": asked["start"].upper(), "end": asked["end"].upper()}
        kinds = random.sample(list(asked), self.counts[level])
        chosen = [[kind, asked[kind]] for kind in asked if kind in kinds]
        prompt = "; ".join(SAID[kind](value) for kind, value in chosen)
        return prompt, {"constraints": chosen, "solution": text}

    def judge(self, task: Task, answer: str) -> Verdict:
        """The share of constraints that are kept."""
        kept = [KEPT[kind](answer, value) for kind, value in task.answer["constraints"]]
        if all(kept):
            return RIGHT
        return Verdict(sum(kept) / len(kept), "partly") if any(kept) else WRONG

    def solve(self, task: Task) -> str:
        """The text that the constraints were read off."""
        return str(task.answer["solution"])


SAID: dict[str, Callable[[Any], str]] = {
    "words": lambda count: f"write {count} words",
    "include": lambda word: f"include {word}",
    "avoid": lambda letter: f"no letter {letter}",
    "start": lambda word: f"start with {word}",
    "end": lambda ending: f"end with {ending}",
    "case": lambda case: f"all {case} case",
}
KEPT: dict[str, Callable[[str, Any], bool]] = {
    "words": lambda text, count: len(text.split()) == count,
    "include": lambda text, word: word in text.lower(),
    "avoid": lambda text, letter: letter not in text.lower(),
    "start": lambda text, word: text.startswith(word),
    "end": lambda text, ending: text.endswith(ending),
    "case": lambda text, case: text.isupper() if case == "upper" else text.islower(),
}


class JsonFormat(Puzzle):
    """Pairs as a JSON object: ``json a=3 b=cat`` -> ``{"a":3,"b":"cat"}``.

    The answer is JSON (RFC 8259), in a fenced block or not: the same keys and values, of the same
    types (a number is no text); order and blanks do not matter, a key given twice is malformed.
    Levels: 0 one number; 1 two or three numbers and words; 2 also lists and true/false; 3 also
    objects (``c.x=4`` is x inside c). Prompt 8-9, 12-28, 12-41, 20-56 characters; answer 7-8,
    13-37, 13-48, 25-69.
    """

    name = "json-format"
    levels = range(4)

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Pairs; the object."""
        count = 1 if level == 0 else random.randint(2, 2 + level)
        keys = random.sample(string.ascii_lowercase, count)
        kinds = ["number"] if level == 0 else ["number", "word"]
        kinds += ["list", "truth"] if level > 1 else []
        made = {key: _value(random, random.choice(kinds)) for key in keys}
        if level == 3:
            inside = random.sample(string.ascii_lowercase, 2)
            made[keys[0]] = {key: _value(random, "number") for key in inside}
        return f"json {' '.join(_pairs(made))}", made

    def judge(self, task: Task, answer: str) -> Verdict:
        """Strictly read, compared with types."""
        try:
            found = json.loads(answer, object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError):  # not JSON, or nested beyond reason
            return MALFORMED
        return RIGHT if _typed(found) == _typed(task.answer) else WRONG

    def extract(self, response: str) -> str:
        """The JSON, out of its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """Without blanks."""
        return json.dumps(task.answer, separators=(",", ":"))


def _value(random: Random, kind: str) -> Any:
    if kind == "list":
        return [random.randint(0, 9) for _ in range(random.randint(1, 3))]
    if kind == "truth":
        return random.random() < 0.5
    return random.choice(WORDS) if kind == "word" else random.randint(0, 99)


def _pairs(made: dict[str, Any], inside: str = "") -> list[str]:
    pairs = []
    for key, value in made.items():
        if isinstance(value, dict):
            pairs += _pairs(value, f"{key}.")
        else:
            said = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            pairs.append(f"{inside}{key}={said}")
    return pairs


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _typed(value: Any) -> str:
    """Text that is equal for equal values of equal types: 1, 1.0, true and "1" all differ."""
    return json.dumps(value, sort_keys=True)
