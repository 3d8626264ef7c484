"""Tic-tac-toe, whose answer is known: between players who make no mistake it is a draw.

``self``: the agent moves for both sides in turn. A step is one move, its reward is the mover's (1
for three in a line), and the discount is -1 while the game goes on: what follows is worth to the
mover the opposite of what it is worth to whoever moves next. Agents are judged against a player who
makes no mistake and chooses among equally good moves by chance, who begins half of the games.
``perfect`` is that game in training too, ``random`` is one against a player who moves by chance; a
step is then a move and its answer, the reward is 1, 0 or -1.

Observed are the squares, first those of whoever moves and then the other's, and ``action_mask``,
the free ones. A move onto a square that is taken loses.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys as named
from sterling.types import Mistake, Obs

NAMES = ("self", "perfect", "random")
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SQUARES = 9


class Board(eqx.Module):
    """Whose squares are whose."""

    own: Bool[Array, "square"]  # of whoever moves
    other: Bool[Array, "square"]

    @property
    def obs(self) -> Obs:
        """What whoever moves sees."""
        both = jnp.concatenate([self.own, self.other]).astype(jnp.float32)
        return {"action_mask": self.free.astype(jnp.int8), "board": both}

    @property
    def free(self) -> Bool[Array, "square"]:
        """Squares that nobody has."""
        return ~(self.own | self.other)

    def moved(self, square: Int[Array, ""]) -> tuple[Board, Float[Array, ""], Bool[Array, ""]]:
        """The board as the other side sees it after this move, what the move earned, and whether
        the game is over."""
        legal = self.free[square]
        own = self.own.at[square].set(True)
        won = own[jnp.asarray(LINES)].all(1).any() & legal
        full = (own | self.other).all()
        reward = won.astype(jnp.float32) - (~legal).astype(jnp.float32)
        return Board(self.other, own), reward, won | full | ~legal


@dataclasses.dataclass(frozen=True)
class SelfPlay:
    """The agent moves for both sides, a :class:`sterling.envs.traced.Task`."""

    alternating: ClassVar = True

    obs: ClassVar = spaces.Dict(
        {
            "action_mask": spaces.Box(0, 1, (SQUARES,), np.int8),
            "board": spaces.Box(0.0, 1.0, (2 * SQUARES,), np.float32),
        }
    )
    action: ClassVar = spaces.Discrete(SQUARES)

    @property
    def judged(self) -> Against:
        """The game that agents are judged in."""
        return Against(perfect=True)

    def reset(self, key: Key[Array, ""]) -> tuple[Board, Obs]:
        """An empty board."""
        board = _empty()
        return board, board.obs

    def step(
        self, state: Board, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Board, Obs, Array, Array, Array]:
        """Move, and hand the board over."""
        board, reward, over = state.moved(action)
        return board, board.obs, reward, over, jnp.zeros((), bool)


@dataclasses.dataclass(frozen=True)
class Against:
    """A game against one player, who begins half of the games."""

    perfect: bool

    obs: ClassVar = SelfPlay.obs
    action: ClassVar = SelfPlay.action

    def reset(self, key: Key[Array, ""]) -> tuple[Board, Obs]:
        """An empty board, or one with the opponent's first move."""
        empty = _empty()
        answered, _, _ = empty.moved(self.reply(empty, named.fold(key, "reply")))
        second = jax.random.bernoulli(named.fold(key, "side"))
        board = jax.tree.map(lambda x, y: jnp.where(second, x, y), answered, empty)
        return board, board.obs

    def step(
        self, state: Board, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Board, Obs, Array, Array, Array]:
        """Move, and be answered where the game goes on."""
        theirs, reward, over = state.moved(action)
        ours, lost, ended = theirs.moved(self.reply(theirs, named.fold(key, "reply")))
        board = jax.tree.map(
            lambda x, y: jnp.where(over, x, y), Board(theirs.other, theirs.own), ours
        )
        reward = jnp.where(over, reward, -lost)
        return board, board.obs, reward, over | ended, jnp.zeros((), bool)

    def reply(self, board: Board, key: Key[Array, ""]) -> Int[Array, ""]:
        """The opponent's move: any that is as good as the best, or any at all."""
        good = board.free
        if self.perfect:
            powers = jnp.asarray(3 ** np.arange(SQUARES), jnp.int32)
            digits = board.own.astype(jnp.int32) + 2 * board.other.astype(jnp.int32)
            good = good & jnp.asarray(perfect_moves())[jnp.sum(digits * powers)]
        logits = jnp.where(good | ~good.any(), 0.0, -jnp.inf)
        return jax.random.categorical(key, logits).astype(jnp.int32)


def _empty() -> Board:
    return Board(jnp.zeros(SQUARES, bool), jnp.zeros(SQUARES, bool))


@cache
def perfect_moves() -> Bool[np.ndarray, "position square"]:
    """The moves without a better one in every position, whose number has a digit to the base 3 for
    each square: 0 where it is free, 1 the mover's, 2 the other's. By minimax."""
    table = np.zeros((3**SQUARES, SQUARES), bool)
    known: dict[tuple[int, ...], int] = {}

    def value(board: tuple[int, ...]) -> int:
        """To whoever moves: 1, 0 or -1."""
        if board in known:
            return known[board]
        if any(all(board[square] == 2 for square in line) for line in LINES):
            return -1
        worth = {}
        for square in (square for square in range(SQUARES) if not board[square]):
            after = [(0, 2, 1)[each] for each in board]
            after[square] = 2
            worth[square] = -value(tuple(after))
        if not worth:
            return 0
        known[board] = best = max(worth.values())
        number = sum(digit * 3**square for square, digit in enumerate(board))
        table[number, [square for square, each in worth.items() if each == best]] = True
        return best

    value((0,) * SQUARES)
    return table


def names() -> list[str]:
    """Who moves for the other side."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` says who moves for the other side."""
    return name in NAMES


def make(name: str) -> tuple[SelfPlay | Against, int]:
    """The game, which no clock cuts."""
    if not knows(name):
        raise Mistake(f"tictactoe {name!r} is not known; write one of {', '.join(NAMES)}")
    return (SelfPlay() if name == "self" else Against(perfect=name == "perfect")), 0
