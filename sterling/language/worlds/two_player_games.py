"""Games of two players with perfect information, for self-play: nim, tic-tac-toe."""

from __future__ import annotations

import abc
import functools
from random import Random
from typing import Any

from sterling.language.scene import BaseScene, Message
from sterling.language.task import Verdict, check_level, final_answer, task_random
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake

WON, DRAWN, LOST = (1.0, "won"), (0.5, "drawn"), (0.0, "lost")


class Game(abc.ABC):
    """A game as a world of two seats that move in turn; seat 0 begins.

    A seat is told the position (which shows the other's move) and answers with a move, as a task's
    :func:`~sterling.language.task.final_answer`. An illegal move loses. Rewards come with the last
    verdict of each seat: 1 for the winner, 0 for the loser, one half each for a draw; earlier moves
    are worth 0 with the reason "moved". A seat that never spoke has no verdict.
    """

    seats = 2
    name: str
    levels: range
    turns: int

    @abc.abstractmethod
    def open(self, random: Random, level: int) -> Any:
        """Return a position to begin from; positions must be hashable."""

    @abc.abstractmethod
    def moves(self, position: Any) -> dict[str, Any]:
        """Return what the player in turn may say, and the position that each move leads to."""

    @abc.abstractmethod
    def lost(self, position: Any) -> bool:
        """Whether the player in turn has lost."""

    @abc.abstractmethod
    def show(self, position: Any) -> str:
        """Return the position as text for the player in turn."""

    def begin(self, seed: int, level: int) -> _Match:
        """Return a game that begins with the position of this seed and level."""
        check_level(self.name, self.levels, level)
        return _Match(self, self.open(task_random(self.name, seed, level), level))

    def solve(self, scene: _Match) -> str:
        """Return a best move, found by searching the whole game."""
        moves = self.moves(scene.position)
        return min(moves, key=lambda move: _game_value(self, moves[move]))


@functools.lru_cache(maxsize=100_000)
def _game_value(game: Game, position: Any) -> int:
    """Return the value of a position to the player in turn, if both play best: 1, 0 or -1."""
    if game.lost(position):
        return -1
    return max((-_game_value(game, after) for after in game.moves(position).values()), default=0)


class _Match(BaseScene):
    def __init__(self, game: Game, position: Any):
        super().__init__(game.seats)
        self.game, self.position = game, position
        self.ask(0, Message("user", game.show(position)))

    def hear(self, seat: int, text: str) -> None:
        after = self.game.moves(self.position).get(final_answer(text))
        if after is None:
            return self._end(seat, (0.0, "illegal"), WON)
        self.position, other = after, 1 - seat
        if self.game.lost(after):
            return self._end(seat, WON, LOST)
        if not self.game.moves(after):
            return self._end(seat, DRAWN, DRAWN)
        self.judge(seat, 0.0, "moved")
        self.ask(other, Message("user", self.game.show(after)))

    def _end(self, seat: int, own: tuple[float, str], others: tuple[float, str]) -> None:
        self.judge(seat, *own)
        if self.verdicts[1 - seat]:
            self.verdicts[1 - seat][-1] = Verdict(*others)


class Nim(Game):
    """Heaps of matches, ``a3 b4 c5``; ``b2`` takes 2 from heap b. Who takes the last match wins.

    Levels 0 to 3: 2 heaps of up to 3, 3 of up to 3, 3 of up to 5, 4 of up to 5.
    """

    name = "game:nim"
    sizes = ((2, 3), (3, 3), (3, 5), (4, 5))  # heaps, largest
    levels = range(len(sizes))
    turns = 10  # 20 matches at most, and every move takes one

    def open(self, random: Random, level: int) -> tuple[int, ...]:
        """Return heaps of 1 to the level's largest number of matches."""
        heaps, largest = self.sizes[level]
        return tuple(random.randint(1, largest) for _ in range(heaps))

    def moves(self, position: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return every way to take at least one match from one heap."""
        return {
            f"{'abcd'[heap]}{taken}": (*position[:heap], left - taken, *position[heap + 1 :])
            for heap, left in enumerate(position)
            for taken in range(1, left + 1)
        }

    def lost(self, position: tuple[int, ...]) -> bool:
        """Whether no match is left to take."""
        return not any(position)

    def show(self, position: tuple[int, ...]) -> str:
        """Return the heaps that are left."""
        return " ".join(
            f"{name}{left}" for name, left in zip("abcd", position, strict=False) if left
        )


class TicTacToe(Game):
    """``x: xo./.../...`` asks x for a cell: 1 to 9 in reading order. Three in a row win.

    Level n (0 to 3) begins after n random moves, so that from 1 on not all games begin alike.
    """

    name = "game:tic-tac-toe"
    levels = range(4)
    turns = 5
    lines = ("012", "345", "678", "036", "147", "258", "048", "246")

    def open(self, random: Random, level: int) -> str:
        """Return the empty board, or one with a few random moves, too few to end the game."""
        position = "." * 9
        for _ in range(level):
            position = random.choice([*self.moves(position).values()])
        return position

    def moves(self, position: str) -> dict[str, str]:
        """Return every way to mark an empty cell."""
        mark = self._mark(position)
        return {
            str(cell + 1): position[:cell] + mark + position[cell + 1 :]
            for cell, held in enumerate(position)
            if held == "."
        }

    def lost(self, position: str) -> bool:
        """Whether the other player has three in a row."""
        row = ("x" if self._mark(position) == "o" else "o") * 3
        return any("".join(position[int(cell)] for cell in line) == row for line in self.lines)

    def show(self, position: str) -> str:
        """Return whose turn it is, and the three rows."""
        rows = "/".join(position[at : at + 3] for at in (0, 3, 6))
        return f"{self._mark(position)}: {rows}"

    def _mark(self, position: str) -> str:
        return "x" if position.count("x") == position.count("o") else "o"


_GAMES: dict[str, type[Game]] = {game.name: game for game in (Nim, TicTacToe)}


def game_names() -> tuple[str, ...]:
    """Return the names of the games, with the prefix ``game:``."""
    return tuple(_GAMES)


def find_game(name: str) -> Game:
    """Return a game by its name, such as ``game:nim``; Mistake for an unknown one."""
    if name not in _GAMES:
        near = did_you_mean(name, _GAMES, f"use {' or '.join(_GAMES)}")
        raise Mistake(f"no game is called {name!r}{near}")
    return _GAMES[name]()
