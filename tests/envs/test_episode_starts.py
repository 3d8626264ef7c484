"""Where episodes begin: levels by number, held-out ones, and worlds that are told where."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import envs, random_keys
from sterling.envs import levels
from sterling.envs.episode_starts import Start, require_startable
from sterling.envs.frame_stack import FrameStack
from sterling.envs.traced_world import TracedWorld
from sterling.envs.trials import Trials
from sterling.envs.world_wrappers import ActionRepeat, ClipReward, Flatten, TimeLimit
from sterling.types import Mistake

SEEDS = (3, 4)
SHAPE = (2, 3)


class Counted:
    """A level is a number below ``kinds``; shown are it, where the episode began and the clock,
    which stands at ``length`` when the episode ends."""

    obs = spaces.Box(0.0, 1000.0, (3,), np.float32)
    action = spaces.Discrete(2)

    def __init__(self, kinds=500, length=2):
        self.kinds, self.length = kinds, length

    def level(self, key):
        return jax.random.randint(key, (), 0, self.kinds, jnp.int32)

    def begin(self, level, key):
        where = jax.random.randint(key, (), 0, 1000, jnp.int32)
        state = jnp.stack([level, where, jnp.zeros((), jnp.int32)])
        return state, state.astype(jnp.float32)

    def step(self, state, action, key):
        state = state + jnp.array([0, 0, 1], jnp.int32)
        ended = state[2] == self.length
        return state, state.astype(jnp.float32), jnp.ones(()), ended, jnp.zeros((), bool)


def numbers(*rows):
    return jnp.array(rows, jnp.int32)


def walk(world, state, count, begin=0):
    """Observations ``(time, seed, env, 3)`` and masks of so many steps, and the state after."""

    @jax.jit
    def move(state, time):
        action = jnp.zeros((world.seeds, world.spec.envs), jnp.int32)
        return world.step(state, action, random_keys.for_seeds(jnp.asarray(SEEDS), "step", time))

    rows = []
    for time in range(begin, begin + count):
        state, step = move(state, jnp.int32(time))
        rows.append((step.obs, step.mask, step.last))
    return state, *(np.stack(each) for each in zip(*rows, strict=True))


def begun(world):
    return world.reset(random_keys.for_seeds(jnp.asarray(SEEDS), "reset", 0))


def test_levels_replace_reset_as_episode_starts():
    world = TracedWorld(Counted(), SEEDS, 3)
    state, obs = begun(world)
    _, seen, mask, _ = walk(world, state, 30)
    found = np.concatenate([np.asarray(obs)[None], seen[~mask[:, 0, 0]]])[..., 0]
    assert len(np.unique(found)) > 40  # of 66 draws of 500


def test_fixed_training_levels_differ_from_held_out_levels():
    made = {}
    for purpose in ("train", "evaluate"):
        world = envs.make(Counted(), SEEDS, 50, purpose=purpose, levels=20)
        state, obs = begun(world)
        _, seen, mask, _ = walk(world, state, 30)
        made[purpose] = set(np.unique([obs[..., 0], *seen[~mask[:, 0, 0]][..., 0]]).tolist())
        assert made[purpose] <= set(np.asarray(world.book).tolist())
    assert len(made["train"]) == 20
    assert len(made["evaluate"]) == levels.MAX_HELD_OUT
    assert not made["train"] & made["evaluate"]


def test_smaller_level_book_is_a_prefix_and_held_out_levels_are_fixed():
    few, many = (
        np.asarray(levels.make_level_book(Counted(), "train", count)) for count in (10, 40)
    )
    np.testing.assert_array_equal(few, many[:10])
    assert len(set(many.tolist())) == 40
    held_out = [
        levels.make_level_book(Counted(), f"evaluate{x}", n) for x, n in (("", 10), ("/late", 40))
    ]
    np.testing.assert_array_equal(*held_out)


@pytest.mark.parametrize(
    ("kinds", "count", "said"),
    [
        (
            120,
            40,
            r"levels=40 is too many: .* (1\d|20) levels beside the 10\d held out .* Give levels=",
        ),
        (3, 2, "levels=2 is too many: .* about 0 levels beside the 3 held out .* Give levels=0"),
        (9, -1, "levels=-1 is not possible"),
        (9, 1.5, "levels=1.5 is not possible"),
    ],
)
def test_level_book_refuses_more_levels_than_exist(kinds, count, said):
    with pytest.raises(Mistake, match=said.replace(r"10\d", r"\d+")):
        TracedWorld(Counted(kinds), SEEDS, 1, levels=count)


def test_environment_without_levels_refuses_the_levels_option():
    with pytest.raises(Mistake, match="no option 'levels'; it has max_episode_steps"):
        envs.make("classic:CartPole-v1", (0,), 1, levels=3)
    floors = envs.make("classic:CartPole-v1", (0,), 1).task
    object.__setattr__(floors, "levels", ["cellar", "attic"])  # a word that tasks may use otherwise
    assert TracedWorld(floors, (0,), 1).book is None
    with pytest.raises(Mistake, match="has no levels"):
        TracedWorld(envs.make("classic:CartPole-v1", (0,), 1).task, (0,), 1, levels=3)


@pytest.mark.parametrize("strategy", ["map", "vmap"])
def test_assigned_level_starts_from_the_next_reset_in_the_chosen_envs(strategy):
    world = TracedWorld(Counted(), SEEDS, 3, strategy=strategy)
    state, obs = begun(world)
    told = numbers([501, 502, 503], [504, 505, 506])
    given = jnp.array([[True, False, True], [False, True, False]])
    state = world.assign_start(state, Start(level=told), given)
    state, seen, mask, _ = walk(world, state, 9)
    np.testing.assert_array_equal(mask[:, 0, 0], [1, 1, 0, 1, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(seen[:2, ..., 0], np.stack([obs[..., 0]] * 2))
    for time in range(2, 9):  # these and all later episodes
        np.testing.assert_array_equal(seen[time][given][:, 0], told[given])
        assert (seen[time][~given][:, 0] < 500).all()
    assert (seen[2][given][:, 1] != seen[5][given][:, 1]).all()  # chance stays chance
    other = world.assign_start(state, Start(level=told + 100), ~given)
    _, seen, _, _ = walk(world, other, 3, 9)
    np.testing.assert_array_equal(seen[2, ..., 0], np.where(given, told, told + 100))


def test_assigned_start_with_now_ends_the_episode_with_a_masked_row():
    world = TracedWorld(Counted(), SEEDS, 3)
    state, obs = begun(world)
    given = jnp.array([[True, False, False], [False, False, True]])
    state = world.assign_start(state, Start(level=jnp.full(SHAPE, 700)), given, now=True)
    _, seen, mask, last = walk(world, state, 3)
    np.testing.assert_array_equal(mask[0], ~given)
    np.testing.assert_array_equal(seen[0][given][:, [0, 2]], [[700, 0]] * 2)
    np.testing.assert_array_equal(seen[0][~given], np.asarray(obs)[~given] + [0, 0, 1])
    assert not last[0].any()  # nothing is told of an end: there was none
    np.testing.assert_array_equal(last[2], given)


def test_saved_episode_start_restores_state_observation_and_time_limit():
    """State, observation and the clock that cuts are as they were, at every reset."""
    world = TracedWorld(Counted(length=100), SEEDS, 3, limit=2)
    state, obs = begun(world)
    state = world.assign_start(state, world.current_start(state, obs), jnp.zeros(SHAPE, bool))
    state, seen, _, _ = walk(world, state, 1)
    here = world.current_start(state, jnp.asarray(seen[-1]))
    given = jnp.arange(6).reshape(SHAPE) % 2 == 0
    state, _, _, _ = walk(world, state, 4, 1)
    state = world.assign_start(state, here, given, now=True)
    _, back, _, last = walk(world, state, 5, 5)
    np.testing.assert_array_equal(back[0][given], seen[-1][given])
    assert (back[0][~given] != seen[-1][~given]).any(-1).all()
    expected = [[False, True, False, True, False]]  # one step is left of two, and again
    np.testing.assert_array_equal(last[:, given].T, expected * 3)
    np.testing.assert_array_equal(back[2][given], seen[-1][given])
    with pytest.raises(Mistake, match="not both"):
        world.assign_start(state, Start(level=jnp.zeros(SHAPE, jnp.int32)), given)


def test_unassigned_starts_leave_the_environment_unchanged():
    world = TracedWorld(Counted(), SEEDS, 3)
    state, obs = begun(world)
    nobody = jnp.zeros(SHAPE, bool)
    plain = walk(world, state, 9)[1:]
    assert state.start is None
    assert walk(world, state, 1)[0].start is None
    for start in (Start(level=jnp.full(SHAPE, 700)), world.current_start(state, obs)):
        told = walk(world, world.assign_start(state, start, nobody, now=True), 9)[1:]
        for one, other in zip(plain, told, strict=True):
            np.testing.assert_array_equal(one, other)


WRAPPED = {
    "clip": ClipReward,
    "flat": Flatten,
    "repeat": lambda world: ActionRepeat(world, 2),
    "stack": lambda world: FrameStack(world, 2),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_world_wrappers_pass_assigned_levels_on(name):
    world = WRAPPED[name](TracedWorld(Counted(), SEEDS, 3, levels=20))
    assert len(world.book) == 20
    state, _ = begun(world)
    given = jnp.zeros(SHAPE, bool).at[0].set(True)
    state = require_startable(world).assign_start(
        state, Start(level=jnp.full(SHAPE, 700)), given, now=True
    )
    seen, mask = walk(world, state, 1)[1:3]
    np.testing.assert_array_equal(seen[0][..., 0] == 700, given)
    np.testing.assert_array_equal(mask[0], ~given)


class Picture(Counted):
    """The same, shown as a picture of bytes."""

    obs = spaces.Box(0, 255, (3, 1), np.uint8)

    def begin(self, level, key):
        state, obs = super().begin(level, key)
        return state, self.shown(obs)

    def step(self, state, action, key):
        state, obs, *rest = super().step(state, action, key)
        return state, self.shown(obs), *rest

    def shown(self, obs):
        return (obs[:, None] % 256).astype(jnp.uint8)


def test_flatten_wrapper_restores_saved_pictures_bit_for_bit():
    world = Flatten(TracedWorld(Picture(), SEEDS, 3))
    state, obs = begun(world)
    state = world.assign_start(state, world.current_start(state, obs), jnp.ones(SHAPE, bool))
    seen = walk(world, state, 3)[1]
    np.testing.assert_array_equal(seen[2], obs)
    for raw in np.arange(270, dtype=np.int32).astype(np.uint8).reshape(15, *SHAPE, 3, 1):
        back = world.current_start(state, world.to_agent(jnp.asarray(raw))).obs
        np.testing.assert_array_equal(back, raw, strict=True)


def test_environments_that_cannot_restore_a_start_are_refused():
    stacked = FrameStack(TracedWorld(Counted(), SEEDS, 3), 2)
    state, obs = begun(stacked)
    with pytest.raises(Mistake, match="Use stack=1"):
        stacked.current_start(state, obs)
    timed = TimeLimit(TracedWorld(Counted(), SEEDS, 3), 4)
    with pytest.raises(Mistake, match="max_episode_steps"):
        timed.assign_start(begun(timed)[0], Start(), jnp.zeros(SHAPE, bool))
    pool = envs.make("envpool:CartPole-v1", (0,), 1)
    for world in (pool, ClipReward(pool)):
        with pytest.raises(Mistake, match="PoolWorld cannot begin an episode in a given start"):
            require_startable(world).assign_start(None, Start(), jnp.zeros((1, 1), bool))
    pool.close()
    cart = TracedWorld(envs.make("classic:CartPole-v1", (0,), 1).task, SEEDS, 3)
    with pytest.raises(Mistake, match="no levels to begin in"):
        cart.assign_start(begun(cart)[0], Start(level=jnp.zeros(SHAPE)), jnp.zeros(SHAPE, bool))


def test_assigned_starts_are_part_of_the_checkpointed_state():
    """What is told is leaves of the world's state, so checkpoints hold it."""
    world = TracedWorld(Counted(), SEEDS, 3)
    state, _ = begun(world)
    told = world.assign_start(
        state, Start(level=jnp.zeros(SHAPE, jnp.int32)), jnp.ones(SHAPE, bool)
    )
    assert len(jax.tree.leaves(told)) == len(jax.tree.leaves(state)) + 2
    assert dataclasses.replace(told, start=None, given=None).start is None


def test_learners_are_told_the_space_of_a_tasks_levels_also_where_they_are_evaluated():
    class Named(Counted):
        level_space = spaces.Discrete(500)

    for purpose in ("train", "evaluate"):
        world = TracedWorld(Named(), SEEDS, 2, purpose=purpose)
        assert FrameStack(world, 2).spec.level_space == spaces.Discrete(500)
    assert TracedWorld(Trials(Named(), 2), SEEDS, 2).spec.level_space == spaces.Discrete(500)
    assert TracedWorld(Counted(), SEEDS, 2).spec.level_space is None


@pytest.mark.parametrize(
    ("space", "said"),
    [(500, "a gymnasium space"), (spaces.Box(0.0, 1.0, (2,)), "the shapes \\(\\)")],
)
def test_level_spaces_of_another_form_than_the_levels_are_refused(space, said):
    task = Counted()
    task.level_space = space
    with pytest.raises(Mistake, match=said):
        TracedWorld(task, SEEDS, 2)
