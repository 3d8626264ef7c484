"""Tasks about an answer's form: text under constraints, and JSON."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from random import Random
from typing import Any

from sterling.language.task import MALFORMED, RIGHT, WRONG, Task, Verdict, code_answer
from sterling.language.tasks.task_checks import Puzzle

WORDS = (
    *("sun", "moon", "star", "tree", "river", "stone", "bird", "fish", "wolf", "bear", "cloud"),
    *("rain", "snow", "wind", "fire", "sand", "gold", "iron", "silk", "salt", "milk", "corn"),
    *("red", "blue", "green", "black", "white", "old", "new", "warm", "cold", "high", "low"),
)
ENDINGS = ("!", "?", "...", " amen")


class Instructions(Puzzle):
    """A text under constraints: ``write 3 words; include red; end with !`` -> ``red sun moon!``.

    The answer is any text that keeps them; words are separated by blanks. Constraints:
    ``write N words``, ``include W`` (as a part, in either case), ``no letter X`` (in neither case),
    ``start with W``, ``end with E``, ``all upper case`` or ``all lower case``. The reward is the
    share of constraints that are kept ("partly" between 0 and 1). Levels 0 to 3: 1, 2, 3 and 5
    constraints. Prompt 10-16, 23-32, 36-47, 67-77 characters; demonstrated answer 8-49.
    """

    name = "instructions"
    counts = (1, 2, 3, 5)
    levels = range(len(counts))

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Return constraints that a known text keeps, and that text."""
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
        prompt = "; ".join(CONSTRAINT_WORDS[kind](value) for kind, value in chosen)
        return prompt, {"constraints": chosen, "solution": text}

    def judge(self, task: Task, answer: str) -> Verdict:
        """Return the share of constraints that are kept as the verdict."""
        kept = [
            CONSTRAINT_CHECKS[kind](answer, value) for kind, value in task.answer["constraints"]
        ]
        if all(kept):
            return RIGHT
        return Verdict(sum(kept) / len(kept), "partly") if any(kept) else WRONG

    def solve(self, task: Task) -> str:
        """Return the text that the constraints were made from."""
        return str(task.answer["solution"])


CONSTRAINT_WORDS: dict[str, Callable[[Any], str]] = {
    "words": lambda count: f"write {count} words",
    "include": lambda word: f"include {word}",
    "avoid": lambda letter: f"no letter {letter}",
    "start": lambda word: f"start with {word}",
    "end": lambda ending: f"end with {ending}",
    "case": lambda case: f"all {case} case",
}
CONSTRAINT_CHECKS: dict[str, Callable[[str, Any], bool]] = {
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
    types (a number is not a text); order and blanks do not matter, a repeated key is malformed.
    Levels: 0 one number; 1 two or three numbers and words; 2 also lists and true/false; 3 also
    objects (``c.x=4`` is x inside c). Prompt 8-9, 12-28, 12-41, 20-56 characters; answer 7-8,
    13-37, 13-48, 25-69.
    """

    name = "json-format"
    levels = range(4)

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Return pairs as text, and the object that they make."""
        count = 1 if level == 0 else random.randint(2, 2 + level)
        keys = random.sample(string.ascii_lowercase, count)
        kinds = ["number"] if level == 0 else ["number", "word"]
        kinds += ["list", "truth"] if level > 1 else []
        made = {key: _random_value(random, random.choice(kinds)) for key in keys}
        if level == 3:
            inside = random.sample(string.ascii_lowercase, 2)
            made[keys[0]] = {key: _random_value(random, "number") for key in inside}
        return f"json {' '.join(_prompt_pairs(made))}", made

    def judge(self, task: Task, answer: str) -> Verdict:
        """Read the answer as strict JSON, and compare values and types."""
        try:
            found = json.loads(
                answer, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant
            )
        except (ValueError, RecursionError):  # not JSON, or nested beyond reason
            return MALFORMED
        return RIGHT if _typed_text(found) == _typed_text(task.answer) else WRONG

    def extract(self, response: str) -> str:
        """Return the JSON without its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """Return the object as JSON without blanks."""
        return json.dumps(task.answer, separators=(",", ":"))


def _random_value(random: Random, kind: str) -> Any:
    if kind == "list":
        return [random.randint(0, 9) for _ in range(random.randint(1, 3))]
    if kind == "truth":
        return random.random() < 0.5
    return random.choice(WORDS) if kind == "word" else random.randint(0, 99)


def _prompt_pairs(made: dict[str, Any], inside: str = "") -> list[str]:
    pairs = []
    for key, value in made.items():
        if isinstance(value, dict):
            pairs += _prompt_pairs(value, f"{key}.")
        else:
            shown = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            pairs.append(f"{inside}{key}={shown}")
    return pairs


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is repeated")
    return dict(pairs)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _typed_text(value: Any) -> str:
    """Return a text that is equal only for equal values of equal types: 1, 1.0, true and "1" all
    differ."""
    return json.dumps(value, sort_keys=True)
