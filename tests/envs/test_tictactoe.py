"""Tic-tac-toe: its rules by hand, its perfect moves by what is known of the game."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs
from sterling.envs.native import tictactoe
from sterling.equations.returns import continues, gae
from sterling.types import Mistake


def number(text):
    """The number of a position: x is the mover, o the other, . is free."""
    return sum(".xo".index(letter) * 3**square for square, letter in enumerate(text))


def played(squares):
    """A game of both sides: rewards, discounts, ends and boards."""
    task, limit = tictactoe.make("self")
    assert limit == 0
    state, obs = task.reset(jax.random.key(0))
    rows = []
    for square in squares:
        state, obs, reward, over, cut = task.step(state, jnp.int32(square), jax.random.key(1))
        assert not cut
        rows.append((float(reward), bool(over), np.asarray(obs["board"]).reshape(2, 9)))
    return rows


def test_tictactoe_three_in_a_line_wins_and_swaps_the_board():
    rows = played([0, 3, 1, 4, 2])  # the first side takes the upper row
    assert [row[:2] for row in rows] == [(0.0, False)] * 4 + [(1.0, True)]
    assert rows[0][2].tolist() == [[0] * 9, [1] + [0] * 8]  # seen by the second side
    assert rows[1][2].tolist() == [[1] + [0] * 8, [0, 0, 0, 1] + [0] * 5]
    assert played([0, 3, 1, 4, 8, 5])[-1][:2] == (1.0, True)  # the second side's line is its own
    assert played([0, 1, 2, 4, 3, 5, 7, 6, 8])[-1][:2] == (0.0, True)  # a draw
    assert played([4, 4])[-1][:2] == (-1.0, True)  # a square that is taken


@pytest.mark.parametrize(
    ("position", "good"),
    [
        (".........", range(9)),  # every first move draws
        ("o........", [4]),  # a corner is answered in the middle alone
        ("....o....", [0, 2, 6, 8]),  # the middle in a corner
        ("xx.oo....", [2]),  # win rather than prevent
        ("x..oo....", [5]),  # prevent
        ("o...x...o", [1, 3, 5, 7]),  # two opposite corners: an edge, or a fork is lost to
    ],
)
def test_tictactoe_perfect_moves_match_known_positions(position, good):
    assert np.flatnonzero(tictactoe.perfect_moves()[number(position)]).tolist() == list(good)


def test_tictactoe_perfect_players_draw_and_beat_random_ones():
    table = tictactoe.perfect_moves()
    world = envs.make("tictactoe:self", (0, 1), 64, purpose="evaluate")
    keys, random = jax.random.split(jax.random.key(0), 2), np.random.default_rng(0)
    move, fold = jax.jit(world.step), jax.jit(jax.vmap(jax.random.fold_in, (0, None)))

    def returns(perfect):
        state, obs = world.reset(keys)
        found = []
        for time in range(12):
            mask = np.asarray(obs["action_mask"], bool)
            own, other = np.moveaxis(np.asarray(obs["board"]).reshape(2, 64, 2, 9), 2, 0)
            place = ((own + 2 * other) * 3 ** np.arange(9)).sum(-1).astype(int)
            allowed = (mask & table[place]) if perfect else mask
            action = (allowed * random.random(allowed.shape)).argmax(-1)
            state, step = move(state, jnp.asarray(action), fold(keys, time))
            assert set(np.unique(step.discount)) <= {0.0, 1.0}  # one side's own game
            found += np.asarray(step.reward)[np.asarray(step.last)].tolist()
            obs = step.obs
        return np.array(found)

    assert (returns(perfect=True) == 0.0).all()
    lost = returns(perfect=False)
    assert lost.min() == -1.0
    assert lost.max() == 0.0
    assert (lost < 0).mean() > 0.3


def test_tictactoe_zero_sum_discount_alternates_advantage_sign():
    """The discount is -1 while the game goes on, and advantages of a whole game alternate."""
    world = envs.make("tictactoe:self", (0,), 1)
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    steps, move = [], jax.jit(world.step)
    for square in (0, 3, 1, 4, 2):
        state, step = move(state, jnp.full((1, 1), square, jnp.int32), keys)
        steps.append(step)
    reward, discount, last, mask = (
        jnp.stack([getattr(step, name)[0, 0] for step in steps])
        for name in ("reward", "discount", "last", "mask")
    )
    assert discount.tolist() == [-1, -1, -1, -1, 0]
    none = jnp.zeros(5)
    found = gae(reward, 0.5 * discount, none, none, continues(last, mask), lam=1.0)
    np.testing.assert_allclose(found, [0.5**4, -(0.5**3), 0.5**2, -0.5, 1.0])


def test_tictactoe_refuses_unknown_names():
    with pytest.raises(Mistake, match="Unknown environment"):
        envs.make("tictactoe:me", (0,), 1)
