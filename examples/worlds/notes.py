"""A text that does not fit: it is read in pieces, and only a note goes from one piece to the next.

The model sees its note so far and the next digit, in a context of its own, and writes the new note
(MemAgent, Yu 2025, arXiv:2507.02259). The last note is the answer: the largest of all digits. Only
that is rewarded, so a note's worth shows in a later context.

    sterling train sft examples/worlds/notes.py:make --model nano --updates 60 --out runs/read
    sterling train grpo examples/worlds/notes.py:make --model runs/read --out runs/notes
"""

from __future__ import annotations

from random import Random

from sterling.language.scene import BaseScene, Message


class Reading(BaseScene):
    """The digits of one text, and the note so far."""

    def __init__(self, digits: str):
        super().__init__()
        self.left, self.note, self.largest = digits, "0", max(digits)
        self._read()

    def _read(self) -> None:
        digit, self.left = self.left[0], self.left[1:]
        self.ask(0, Message("user", f"{self.note},{digit}"), fresh_context=True)

    def hear(self, seat: int, text: str) -> None:
        """Take the answer as the note, and read on; after the last digit, judge it."""
        self.note = text[:1]
        if self.left:
            self.judge(seat, 0.0, "note")
            return self._read()
        return self.judge(seat, float(text == self.largest))


class Notes:
    """Texts of ``length`` digits."""

    name, seats, levels = "notes", 1, range(1)

    def __init__(self, length: int):
        self.turns = self.contexts = length

    def begin(self, seed: int, level: int) -> Reading:
        """Return the scene of this seed."""
        random = Random(seed)
        return Reading("".join(str(random.randrange(5)) for _ in range(self.turns)))

    def solve(self, scene: Reading) -> str:
        """Return the right note: the larger of the note before and the digit."""
        assert scene.turn is not None
        return max(scene.turn.messages[-1].content.split(","))


def make() -> Notes:
    """Return the world of texts of three digits."""
    return Notes(3)
