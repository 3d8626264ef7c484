"""A world of text with a known answer: say "a", four times."""

from __future__ import annotations

import os
import signal

from sterling.language.scene import BaseScene, Message

WORTH = 4


class _Scene(BaseScene):
    def __init__(self, world, seed):
        super().__init__()
        self.world = world
        self.ask(0, Message("user", "xyz"[seed % 3]))

    def hear(self, seat, text):
        self.world.heard += 1
        if self.world.heard == self.world.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        self.judge(seat, text[:WORTH].count("a") / WORTH, "counted")


class Letters:
    """The reward is the share of "a" among the first four letters. ``dies``: with so many answers
    heard, the process is killed."""

    name, seats, turns, levels = "letters", 1, 1, range(2)

    def __init__(self, dies=0):
        self.heard, self.dies = 0, dies

    def begin(self, seed, level):
        return _Scene(self, seed)

    def solve(self, scene):
        return "a" * WORTH
