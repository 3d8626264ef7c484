"""Older selves in a game: rows as the agent lives them, by hand, and who is in the pool."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

import sterling
from sterling import envs, random_keys
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.self_play import Config, OpponentPool, merge_steps
from sterling.types import Mistake, Step

SEEDS, ENVS = (0, 1), 8


class Ordered(eqx.Module):
    """Takes the first free square of its own order, ``(seed, square)``."""

    order: jax.Array

    def act(self, obs, keys, explore):
        free = jnp.take_along_axis(obs["action_mask"], self.order[:, None], 2)
        first = jnp.argmax(free, 2)
        return jnp.take_along_axis(self.order[:, None], first[..., None], 2)[..., 0], {}


UP, DOWN = constant_array(range(9)), constant_array(range(8, -1, -1))


def at(time):
    return random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "test", time)


def ordered(order):
    return Ordered(jnp.tile(order, (len(SEEDS), 1)))


@functools.cache
def made(members=2, every=1000, order=DOWN, length=60):
    world = envs.make("tictactoe:self", SEEDS, ENVS)
    lived = Rollout.create(world, length, at(0))
    return OpponentPool.create(lived, Config(members, every), at(0), ordered(order))


@eqx.filter_jit
def live(source, agent, time):
    return source.live(agent, at(time))


def games(rows, seed, env):
    """The games of one env: of each the squares that the agent took and its rewards."""
    found, now = [], ([], [])
    for time in range(rows.mask.shape[1]):
        if rows.mask[seed, time, env]:
            now[0].append(int(rows.action[seed, time, env]))
            now[1].append(float(rows.reward[seed, time, env]))
        if rows.last[seed, time, env]:
            found, now = [*found, now], ([], [])
    return found


def test_self_play_row_joins_a_move_and_the_opponents_reply():
    _, rows = live(made(), ordered(UP), jnp.int32(1))
    seated = np.asarray(rows.discount)[:, :, :4][np.asarray(rows.mask)[:, :, :4]]
    assert set(seated.tolist()) == {0.0, 1.0}
    alone = np.asarray(rows.discount)[:, :, 4:][np.asarray(rows.mask)[:, :, 4:]]
    assert set(alone.tolist()) == {0.0, -1.0}
    # up takes 0 1 2, down 8 7 6: whoever begins wins with the third move
    played = [game for seed in range(2) for env in range(4) for game in games(rows, seed, env)]
    assert {tuple(map(tuple, game)) for game in played} == {
        ((0, 1, 2), (0.0, 0.0, 1.0)),
        ((0, 1), (0.0, -1.0)),  # down had begun: the answer to the second move is its third
    }
    begun = np.array([len(game[0]) == 2 for game in played])
    assert 0.35 < begun.mean() < 0.65
    # alone, the first side takes 0 2 4 6
    both = [game for seed in range(2) for env in range(4, 8) for game in games(rows, seed, env)]
    assert {tuple(map(tuple, game)) for game in both} == {
        ((0, 1, 2, 3, 4, 5, 6), (*[0.0] * 6, 1.0))
    }


def test_self_play_observations_are_from_the_agents_own_side():
    _, rows = live(made(), ordered(UP), jnp.int32(1))
    own, other = np.moveaxis(np.asarray(rows.obs["board"]).reshape(2, 60, ENVS, 2, 9), 3, 0)
    mask = np.asarray(rows.mask)[:, :, :4]
    assert not own[:, :, :4, 6:][mask].any()
    assert not other[:, :, :4, :3][mask].any()
    assert other[:, :, :4, 6:][mask].any()
    ahead = (own.sum(-1) - other.sum(-1))[:, :, :4][mask]
    assert set(ahead.tolist()) == {0.0, -1.0}


def test_self_play_merge_of_two_steps_keeps_the_bootstrapped_return():
    def step(reward, discount, last, mask=True):
        shape = (1, 1)
        rows = [jnp.full(shape, each) for each in (reward, discount, last, mask)]
        return Step(jnp.zeros(shape), *rows)

    value = 0.7  # of what follows, to whoever moves then
    for answer in (step(0.0, -1.0, False), step(1.0, 0.0, True), step(-0.5, -1.0, False)):
        joined = merge_steps(step(0.25, -1.0, False), answer)
        inner = float(answer.reward[0, 0]) + float(answer.discount[0, 0]) * value
        wanted = 0.25 - 1.0 * inner
        assert float((joined.reward + joined.discount * value)[0, 0]) == pytest.approx(wanted)
        assert bool(joined.last[0, 0]) == bool(answer.last[0, 0])


def test_opponent_pool_members_play_in_their_own_envs():
    source = made(members=2)
    mixed = jnp.stack([jnp.tile(UP, (2, 1)), jnp.tile(DOWN, (2, 1))], 1)
    state = eqx.tree_at(lambda state: state.pool.order, source.source.state, mixed)
    source = eqx.tree_at(lambda source: source.source.state, source, state)
    _, rows = live(source, ordered(jnp.roll(UP, -3)), jnp.int32(1))  # 3 4 5 first
    other = np.asarray(rows.obs["board"]).reshape(2, 60, ENVS, 2, 9)[..., 1, :]
    assert other[:, :, :2, 0].any()
    assert not other[:, :, :2, 8].any()
    assert other[:, :, 2:4, 8].any()
    assert not other[:, :, 2:4, 0].any()


def test_opponent_pool_replaces_members_by_the_agent_in_turn():
    source, seen = made(members=2, every=3 * 60 * ENVS), []
    for time in range(10):
        agent = ordered(jnp.full(9, time, jnp.int32))  # a mark, not a player
        before = np.asarray(source.source.state.pool.order)[:, :, 0]
        source, _ = live(source, agent, jnp.int32(time))
        after = np.asarray(source.source.state.pool.order)[:, :, 0]
        changed = before != after
        seen.append(changed.sum(1).tolist())
        assert (after[changed] == time).all()
    assert seen == [[0, 0], [0, 0], [1, 1]] * 3 + [[0, 0]]


def test_opponent_pool_does_not_admit_a_random_warm_up_actor():
    source = made(every=1)
    pool = source.source.state.pool
    source, _ = source.live(RandomActor(ordered(UP), source.world), at(1))
    assert eqx.tree_equal(source.source.state.pool, pool)


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        ("CartPole-v1", {}, "needs a two-player turn-based game"),
        ("tictactoe:perfect", {}, "needs a two-player turn-based game"),
        ("tictactoe:self", {"envs": 7}, "use at least --envs 8"),
        ("tictactoe:self", {"sources": "pool:0,5"}, "members must be.*; write pool:4,10000 or"),
        ("tictactoe:self", {"sources": "pool:2"}, "all its options.*; write pool:4,10000 or"),
    ],
)
def test_opponent_pool_refuses_invalid_settings(environment, options, said):
    how = {"steps": 4_000, "envs": 8, "evaluate_episodes": 0, "sources": "pool", **options}
    with pytest.raises(Mistake, match=said):
        sterling.train("ppo", environment, **how)


def test_opponent_pool_refuses_an_environment_without_saved_state():
    world = envs.make("tictactoe:self", SEEDS, ENVS)
    world.exact = False
    with pytest.raises(
        Mistake, match=r"needs an environment whose state can be saved, .*; leave out"
    ):
        OpponentPool.create(Rollout.create(world, 4, at(0)), Config(2, 9), at(0), ordered(UP))


class Remembering(eqx.Module):
    """Takes a free square by chance; remembers its moves in this game and what it heard last."""

    mark: jax.Array

    def memory(self, envs, keys):
        none = jnp.zeros((len(self.mark), envs))
        return {"moves": none.astype(jnp.int32), "heard": none, "before": none - 1.0}

    def recall(self, past, obs, keys, explore):
        free = obs["action_mask"].astype(jnp.float32)
        chance = jax.vmap(lambda key: jax.random.uniform(key, free.shape[1:], minval=0.1))(keys)
        action = jnp.argmax(free * chance, -1)
        before = jnp.where(past.first, -1.0, past.action.astype(jnp.float32))
        moves = past.memory["moves"] + 1
        return action, {"moves": moves, "heard": past.discount, "before": before}, {}


def test_opponents_with_a_memory_have_one_for_each_game():
    """It is as long as the stones on the board are many; a move of the other side has passed
    between two of its own, so that the discount that it heard is 1."""
    actor = Remembering(jnp.zeros(len(SEEDS)))
    world = envs.make("tictactoe:self", SEEDS, ENVS)
    source = OpponentPool.create(
        Rollout.create(world, 1, at(0), actor), Config(2, 1000), at(0), actor
    )
    counted = 0
    for time in range(30):
        earlier = source.source.state.past
        source, rows = live(source, actor, jnp.int32(time))
        past, on = source.source.state.past, ~np.asarray(rows.last)[:, 0, :4]
        other = np.asarray(source.source.obs["board"])[..., 9:].sum(-1)[:, :4]
        moves = np.asarray(past.memory["moves"])[:, :4]
        np.testing.assert_array_equal(moves[on], other[on])
        assert (np.asarray(past.memory["heard"])[:, :4][moves > 0] == 1.0).all()
        later = (moves > 1) & on
        done = np.asarray(earlier.action)[:, :4]
        np.testing.assert_array_equal(np.asarray(past.memory["before"])[:, :4][later], done[later])
        counted += later.sum()
    assert counted > 20


class Planning(Ordered):
    """Plans the order of squares backwards."""

    def act(self, obs, keys, explore):
        return Ordered(self.order[:, ::-1]).act(obs, keys, explore)

    def without_planning(self):
        return Ordered(self.order)


def test_opponents_that_plan_act_by_their_prior():
    world = envs.make("tictactoe:self", SEEDS, ENVS)
    agent = Planning(jnp.tile(DOWN, (len(SEEDS), 1)))  # it takes 0 1 2, its prior 8 7 6
    source = OpponentPool.create(Rollout.create(world, 30, at(0)), Config(2, 1000), at(0), agent)
    _, rows = live(source, agent, jnp.int32(1))
    played = {tuple(map(tuple, game)) for seed in range(2) for game in games(rows, seed, 0)}
    assert played == {((0, 1, 2), (0.0, 0.0, 1.0)), ((0, 1), (0.0, -1.0))}


@pytest.mark.slow
def test_opponent_pool_trains_recurrent_algorithms():
    how = {"steps": 4_000, "envs": 8, "evaluate_episodes": 0}
    sterling.train("recurrent-ppo", "tictactoe:self", sources="pool", **how)
