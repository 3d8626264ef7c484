"""New levels are tried without being learned from; the lowest scores make room for them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.algorithms import find
from sterling.envs.traced_world import TracedWorld
from sterling.experience.levels import level_buffer
from sterling.experience.levels.level_buffer import BufferRules, LevelBuffer
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.types import Mistake

SEEDS, ENVS, SIZE, LENGTH = (0, 1), 3, 24, 20
EDIT = 0.25  # what an edit adds to a level


class Numbered:
    """A level is a number; shown are it and the clock. Ends after 1 to 3 steps by chance."""

    obs = spaces.Box(0.0, 1000.0, (2,), np.float32)
    action = spaces.Discrete(2)

    def level(self, key):
        return jnp.floor(jax.random.uniform(key, maxval=1000.0))

    def edit(self, level, key):
        return level + EDIT

    def begin(self, level, key):
        state = jnp.stack([level, jnp.zeros(())])
        return state, state

    def step(self, state, action, key):
        state = state + jnp.array([0.0, 1.0])
        ended = (state[1] == 3.0) | jax.random.bernoulli(key, 0.3)
        return state, state, jnp.ones(()), ended, jnp.zeros((), bool)


class Idle:
    """Always does the same; a level is worth its last three digits, some of it as a loss."""

    def act(self, obs, keys, explore):
        return jnp.zeros(obs.shape[:2], jnp.int32), {}

    def advantage(self, rows):
        return jnp.where(rows.obs[..., 1] == 1.0, -9.0, rows.obs[..., 0])


def at(time):
    return random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "test", time)


def made(edits=0, size=SIZE, levels=0):
    world = TracedWorld(Numbered(), SEEDS, ENVS, levels=levels)
    rules = BufferRules(size, 0.5, 0.3, 0.3, edits)
    return LevelBuffer.create(Rollout.create(world, LENGTH, at(0)), at(1), rules)


@jax.jit
def live(source, time):
    return source.live(Idle(), at(time))


@functools.cache
def usual_history():
    """Forty rounds of the usual buffer."""
    return history(made(), 40)


def history(source, rounds):
    """Before each round and after it, and its rows."""
    found = []
    for time in range(2, 2 + rounds):
        after, rows = live(source, time)
        found.append((source, after, rows))
        source = after
    return found


def test_level_buffer_masks_rows_of_unscored_levels_and_scores_them():
    for before, after, rows in usual_history()[:12]:
        level, end = np.asarray(rows.extras["level"]), np.asarray(rows.last)
        content = np.take_along_axis(np.asarray(after.source.book)[:, None], level, 2)
        shown = np.asarray(rows.next_obs)[..., 0]
        np.testing.assert_array_equal(content, shown)  # what the row says is where it was lived
        # a slot without a score before the round: one that had none, or whose level is new
        same = np.asarray(before.source.book == after.source.book)
        tried = np.asarray(before.kept.tried) & same
        trying = np.array(before.trying)
        mask, started = np.asarray(rows.mask), np.zeros((2, LENGTH, ENVS), bool)
        started[:, 1:] = end[:, :-1]
        started[:, 0] = np.asarray(before.source.source.state.ended)
        expected = np.zeros_like(mask)
        for seed, time, env in np.ndindex(mask.shape):
            if started[seed, time, env]:
                trying[seed, env] = not tried[seed, level[seed, time, env]]
            expected[seed, time, env] = not (trying[seed, env] or started[seed, time, env])
        np.testing.assert_array_equal(mask, expected)
        np.testing.assert_array_equal(after.trying, trying)
    assert mask.any()
    assert (~mask & ~started).any()


def test_level_buffer_score_is_the_mean_positive_advantage_of_a_level():
    """Losses count as 0; rows in which the world resets count not at all."""
    before, after, rows = usual_history()[5]
    gain = np.maximum(np.asarray(Idle().advantage(rows)), 0.0)
    level, over = np.asarray(rows.extras["level"]), np.asarray(rows.last)
    reset = np.zeros_like(over)
    reset[:, 1:], reset[:, 0] = over[:, :-1], np.asarray(before.source.source.state.ended)
    for seed in range(2):
        for number in range(SIZE):
            here = (level[seed] == number) & ~reset[seed]
            if here.any():
                assert after.kept.tried[seed, number]
                wanted = gain[seed][here].mean()
                assert float(after.kept.scores[seed, number]) == pytest.approx(wanted, rel=1e-5)


def test_level_buffer_replaces_lowest_scores_but_no_level_in_use():
    for before, after, _ in usual_history()[20:]:
        for seed in range(2):
            old, new = (np.asarray(x.source.book)[seed] for x in (before, after))
            changed = set(np.flatnonzero(old != new))
            told = before.source.told
            used = {int(slot) for each in (told.now, told.following) for slot in each[seed]}
            score, tried = np.asarray(before.kept.scores[seed]), np.asarray(before.kept.tried[seed])
            free = [slot for slot in np.argsort(score, kind="stable") if slot not in used]
            waiting = sum(not tried[slot] for slot in free)
            lowest = [slot for slot in free if tried[slot]][: max(ENVS - waiting, 0)]
            assert changed == set(lowest)
    worth = np.asarray(after.source.book)
    assert worth.mean() > 700.0  # of levels between 0 and 1000, those that are worth most stay


def test_level_buffer_replays_scored_levels_in_half_of_the_episodes():
    replays, trials = 0, 0
    for before, after, rows in history(made(size=60), 60)[20:]:
        chosen = np.asarray(after.kept.chosen)
        assert chosen.all()
        for seed in range(2):
            again = np.asarray(after.kept.replayed[seed])
            assert len(set(again)) == ENVS
            same = np.asarray(before.source.book[seed] == after.source.book[seed])
            assert (np.asarray(before.kept.tried[seed]) & same)[again].all()
            # the first episode that begins in a round may have been drawn before it
            last = np.asarray(rows.last)[seed]
            drawn = np.cumsum(last, 0) - last >= 2
            learned = drawn & np.asarray(rows.mask)[seed]
            assert learned.any()
            assert set(np.asarray(rows.extras["level"])[seed][learned]) <= set(again)
        begun = ~np.asarray(rows.last)[:, 1:] & np.asarray(rows.last)[:, :-1]
        learned = np.asarray(rows.mask)[:, 1:]
        after_begin = np.roll(begun, 1, 1)
        after_begin[:, 0] = False
        replays += (after_begin & learned).sum()
        trials += (after_begin & ~learned).sum()
    # an env's next level is drawn early: some have got a score by the time they are begun
    assert 0.45 < replays / (replays + trials) < 0.7


@pytest.mark.parametrize("edits", [1, 3])
def test_level_buffer_makes_most_new_levels_by_editing_replayed_ones(edits):
    edited, new = 0, 0
    for before, after, _ in history(made(edits), 40)[20:]:
        for seed in range(2):
            old, now = (np.asarray(x.source.book)[seed] for x in (before, after))
            parents = old[np.asarray(before.kept.replayed[seed])]
            for level in now[old != now]:
                is_edit = (level == parents + edits * EDIT).any()
                edited, new = edited + is_edit, new + (not is_edit)
                assert is_edit or level == np.floor(level)
    assert edited / (edited + new) == pytest.approx(0.8, abs=0.15)


def test_level_buffer_draws_new_levels_from_a_fixed_level_set():
    source = made(levels=6)
    assert len(np.unique(np.asarray(source.source.book))) == 6
    _, after, _ = history(source, 10)[-1]
    assert set(np.unique(np.asarray(after.source.book))) <= set(np.asarray(source.world.book))


def test_level_buffer_trial_rows_match_hand_values():
    begins = jnp.array([[0, 1], [1, 0], [0, 0], [0, 1]]) > 0
    level = jnp.array([[0, 1], [2, 1], [2, 1], [2, 0]], jnp.int32)
    tried = jnp.array([True, True, False])
    found = level_buffer.trial_rows(jnp.array([True, True]), begins, level, tried)
    np.testing.assert_array_equal(found, [[1, 0], [1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize("name", ["ppo", "recurrent-ppo"])
def test_level_buffer_trial_rollouts_leave_agents_unchanged(name):
    """A rollout of trials alone leaves networks and normalisers as they are."""
    settings = resolve_settings(
        name, "maze:3x3", steps=4_096, envs=4, sources="plr-robust", preset=False,
        fields={"length": 16, "minibatch": 64, "width": 8}, env_options={"levels": 0},
    )  # fmt: skip
    run = build_first_phase(settings)
    agent, start = run.agent, random_keys.for_seeds(run.seeds, "test", 0)
    _, rows = jax.jit(lambda source: source.live(agent, start))(run.source)
    assert not np.asarray(rows.mask).any()  # nothing has a score yet
    assert np.abs(np.asarray(rows.reward)).sum() > 0
    before, batch = jax.tree.map(lambda x: x[0], (agent.state, rows))
    after, _ = jax.jit(find(name).learn)(before, batch, jax.random.key(0))
    for part in ("nets", "obs_statistics", "reward_statistics"):
        one, other = (jax.tree.leaves(getattr(state, part)) for state in (before, after))
        for old, new in zip(one, other, strict=True):
            np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("name", "environment", "sources", "said"),
    [
        ("ppo", "maze:3x3", "plr-robust:10,0.5,0.3,0.3", "use at least 32"),
        ("ppo", "maze:3x3", "accel:1000,0.5,0.3,0.3", "give all its options in this order"),
        ("ppo", "maze:3x3", "accel:1000,0.5,0.3,0.3,0.5", "field edits must be of type int"),
        (
            "ppo",
            "maze:3x3",
            "plr-robust:1000,1,0.3,0.3",
            "field replay must be above 0 and below 1",
        ),
        ("ppo", "maze:3x3", "plr+accel", "plr and accel each choose where episodes begin"),
        ("ppo", "maze:3x3", "go-explore+plr", "go-explore and plr each choose where"),
        ("ppo", "CartPole-v1", "plr-robust", "has no levels"),
        ("ppo", "trials:2:tabular:chain-8", "plr-robust", "has no levels"),
        ("ppo", "envpool:CartPole-v1", "accel", "cannot begin an episode in a given start"),
        ("dqn", "maze:3x3", "accel", "dqn has no advantage"),
    ],
)
def test_level_buffer_refuses_invalid_settings(name, environment, sources, said):
    with pytest.raises(Mistake, match=said) as told:
        sterling.train(
            name, environment, steps=90_000, envs=8, evaluate_episodes=0, sources=sources,
            preset=False,
        )  # fmt: skip
    assert "\n" not in str(told.value)


def test_level_buffer_refuses_editing_without_an_edit_method():
    class Fixed:
        obs, action = Numbered.obs, Numbered.action
        level, begin, step = Numbered.level, Numbered.begin, Numbered.step

    rollout = Rollout.create(TracedWorld(Fixed(), SEEDS, ENVS), LENGTH, at(0))
    LevelBuffer.create(rollout, at(1), BufferRules(SIZE, 0.5, 0.3, 0.3))
    with pytest.raises(Mistake, match=r"has no edit\(level, key\); use plr-robust"):
        LevelBuffer.create(rollout, at(1), BufferRules(SIZE, 0.5, 0.3, 0.3, 1))
