"""Tic-tac-toe, whose answer is known: between perfect players it is a draw.

``self``: the agent moves for both sides in turn. A step is one move, its reward is the mover's (1
for three in a line), and the discount is -1 while the game continues: what the next mover gains,
this one loses. Evaluation is against a perfect player that picks among equally good moves at random
and begins half of the games. ``perfect`` is that game in training, too; ``random`` is against a
player that moves at random. In these two, a step is a move and the opponent's reply, and the reward
is 1, 0 or -1.

The observation is the squares, those of the player to move first, then the other's, and
``action_mask``, the free squares. A move onto a taken square loses.
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

from sterling import random_keys
from sterling.problem.action_choices import ACTION_MASK
from sterling.types import Mistake, Obs

NAMES = ("self", "perfect", "random")
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SQUARES = 9


class Board(eqx.Module):
    """The squares of the player to move, and those of the other."""

    own: Bool[Array, "square"]  # of the player to move
    other: Bool[Array, "square"]

    @property
    def obs(self) -> Obs:
        """The observation of the player to move."""
        both = jnp.concatenate([self.own, self.other]).astype(jnp.float32)
        return {ACTION_MASK: self.free.astype(jnp.int8), "board": both}

    @property
    def free(self) -> Bool[Array, "square"]:
        """The squares that are still free."""
        return ~(self.own | self.other)

    def after_move(self, square: Int[Array, ""]) -> tuple[Board, Float[Array, ""], Bool[Array, ""]]:
        """Return the board after a move as the other side sees it, the mover's reward, and whether
        the game is over."""
        legal = self.free[square]
        own = self.own.at[square].set(True)
        won = own[jnp.asarray(LINES)].all(1).any() & legal
        full = (own | self.other).all()
        reward = won.astype(jnp.float32) - (~legal).astype(jnp.float32)
        return Board(self.other, own), reward, won | full | ~legal


@dataclasses.dataclass(frozen=True)
class SelfPlay:
    """The agent moves for both sides, as a :class:`sterling.envs.traced_world.Task`."""

    alternating: ClassVar = True

    obs: ClassVar = spaces.Dict(
        {
            ACTION_MASK: spaces.Box(0, 1, (SQUARES,), np.int8),
            "board": spaces.Box(0.0, 1.0, (2 * SQUARES,), np.float32),
        }
    )
    action: ClassVar = spaces.Discrete(SQUARES)

    @property
    def evaluation_task(self) -> VersusOpponent:
        """The task for evaluation: a game against a perfect player."""
        return VersusOpponent(perfect=True)

    def reset(self, key: Key[Array, ""]) -> tuple[Board, Obs]:
        """Start with an empty board."""
        board = _empty_board()
        return board, board.obs

    def step(
        self, state: Board, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Board, Obs, Array, Array, Array]:
        """Make a move and pass the board to the other side."""
        board, reward, over = state.after_move(action)
        return board, board.obs, reward, over, jnp.zeros((), bool)


@dataclasses.dataclass(frozen=True)
class VersusOpponent:
    """A game against a perfect or random opponent, who begins half of the games."""

    perfect: bool

    obs: ClassVar = SelfPlay.obs
    action: ClassVar = SelfPlay.action

    def reset(self, key: Key[Array, ""]) -> tuple[Board, Obs]:
        """Start with an empty board, or with the opponent's first move."""
        empty = _empty_board()
        answered, _, _ = empty.after_move(self.reply(empty, random_keys.fold(key, "reply")))
        second = jax.random.bernoulli(random_keys.fold(key, "side"))
        board = jax.tree.map(lambda x, y: jnp.where(second, x, y), answered, empty)
        return board, board.obs

    def step(
        self, state: Board, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Board, Obs, Array, Array, Array]:
        """Make a move; the opponent replies if the game is not over."""
        theirs, reward, over = state.after_move(action)
        ours, lost, ended = theirs.after_move(self.reply(theirs, random_keys.fold(key, "reply")))
        board = jax.tree.map(
            lambda x, y: jnp.where(over, x, y), Board(theirs.other, theirs.own), ours
        )
        reward = jnp.where(over, reward, -lost)
        return board, board.obs, reward, over | ended, jnp.zeros((), bool)

    def reply(self, board: Board, key: Key[Array, ""]) -> Int[Array, ""]:
        """Return the opponent's move: a random one of the best moves, or a random one of all."""
        good = board.free
        if self.perfect:
            powers = jnp.asarray(3 ** np.arange(SQUARES), jnp.int32)
            digits = board.own.astype(jnp.int32) + 2 * board.other.astype(jnp.int32)
            good = good & jnp.asarray(perfect_moves())[jnp.sum(digits * powers)]
        logits = jnp.where(good | ~good.any(), 0.0, -jnp.inf)
        return jax.random.categorical(key, logits).astype(jnp.int32)


def _empty_board() -> Board:
    return Board(jnp.zeros(SQUARES, bool), jnp.zeros(SQUARES, bool))


@cache
def perfect_moves() -> Bool[np.ndarray, "position square"]:
    """Return the best moves in every position, by minimax.

    A position's index has one base-3 digit for each square: 0 free, 1 the mover's, 2 the other's.
    """
    table = np.zeros((3**SQUARES, SQUARES), bool)
    known: dict[tuple[int, ...], int] = {}

    def value(board: tuple[int, ...]) -> int:
        """Return the game's value for the player to move: 1, 0 or -1."""
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
    """Return all names: who moves for the other side."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` says who moves for the other side."""
    return name in NAMES


def make(name: str) -> tuple[SelfPlay | VersusOpponent, int]:
    """Return the game called ``name``, and 0: it has no time limit."""
    if not knows(name):
        raise Mistake(f"Unknown tictactoe {name!r}. Use one of {', '.join(NAMES)}.")
    return (SelfPlay() if name == "self" else VersusOpponent(perfect=name == "perfect")), 0
