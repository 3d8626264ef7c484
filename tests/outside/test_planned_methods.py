"""Methods of examples/methods that plan: a known answer, a short run, what it learns."""

import runpy
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.actor import Past
from sterling.lookup import user_imports
from sterling.types import Mistake, Record, Spec

METHODS = Path(__file__).parents[2] / "examples/methods"
MUZERO, TDMPC2 = METHODS / "muzero.py", str(METHODS / "tdmpc2.py")
OBS = spaces.Dict(
    {
        "action_mask": spaces.Box(0, 1, (4,), np.int8),
        "board": spaces.Box(0.0, 1.0, (3,), np.float32),
    }
)


@pytest.fixture(name="muzero", scope="module")
def _muzero():
    return user_imports.load(str(MUZERO))


def new_state(muzero, **facts):
    config = muzero.Config(groups=1, width=8, simulations=8)
    return muzero.init(jax.random.key(0), Spec(OBS, spaces.Discrete(4), **facts), config)


def seen(count, allowed=(1, 1, 1, 1)):
    mask = jnp.broadcast_to(jnp.asarray(allowed, jnp.int8), (count, 4))
    return {"action_mask": mask, "board": jnp.zeros((count, 3))}


class OneMove(eqx.Module):
    """A model in which action a leads to a state where every action pays ``worth[a]`` and ends."""

    worth: jax.Array
    bins: eqx.Module
    actions: object = eqx.field(static=True)

    def represent(self, obs):
        return jnp.zeros((len(obs["board"]), 2))

    def step(self, z, action):
        first = z[:, :1] == 0.0
        after = jnp.where(first, jnp.stack([jnp.ones(len(z)), self.worth[action]], -1), z)
        reward = self.bins.target(jnp.where(first[:, 0], 0.0, z[:, 1]))
        return after, jnp.log(reward + 1e-20), jnp.where(first[:, 0], 99.0, -99.0)

    def predict(self, z):
        return jnp.zeros((len(z), 4)), jnp.log(self.bins.target(z[:, 1]) + 1e-20)


def test_muzero_searches_for_the_mover_among_allowed_actions(muzero):
    """Alone it takes what leads to the largest value; in turns what is worst for the opponent."""
    worth, obs = jnp.array([0.9, 0.5, -0.4, -0.8]), seen(2, (0, 1, 1, 0))

    @jax.jit
    def search(sign):
        fresh = new_state(muzero)
        model = OneMove(worth, fresh.bins, fresh.nets.actions)
        state = eqx.tree_at(lambda s: (s.nets, s.sign), fresh, (model, sign))
        return muzero.act(state, obs, jax.random.key(1), False)

    for sign, expected in ((1.0, 1), (-1.0, 2)):
        action, extras = search(jnp.float32(sign))
        assert action.tolist() == [expected] * 2
        found = np.asarray(extras["search"][0])
        np.testing.assert_allclose(found[[0, 3]], 0.0, atol=1e-6)
        # pi' = softmax(0.1 (50 + visits) q): both allowed actions are visited four times
        odds = np.exp(0.1 * 54 * 0.997 * sign * np.array([0.5, -0.4]))
        np.testing.assert_allclose(found[1:3], odds / odds.sum(), atol=1e-3)
    for alternating in (False, True):
        sign = jax.jit(lambda a=alternating: new_state(muzero, alternating=a).sign)()
        assert sign == (-1.0 if alternating else 1.0)


def test_muzero_acts_without_its_search_alike_and_an_update_keeps_the_form_of_its_state(muzero):
    """By shapes alone: of two envs, and of three sequences of five rows."""
    state = jax.eval_shape(lambda: new_state(muzero))
    key = jax.random.key(0)
    planned, own = (
        jax.eval_shape(lambda s, act=act: act(s, seen(2), key, True), state)
        for act in (muzero.act, muzero.prior)
    )
    assert planned == own
    assert planned[1]["search"].shape == (2, 4)

    def learn(state):
        obs = jax.tree.map(lambda x: jnp.stack([x] * 3), seen(5))
        none = jnp.zeros((3, 5))
        extras = {"search": jnp.zeros((3, 5, 4)), "reward_now": none, "discount_now": none}
        action = jnp.zeros((3, 5), jnp.int32)
        rows = Record(obs, action, none, none, obs, none > 0, none == 0, extras)
        return muzero.learn(state, rows, key)[0]

    learned = jax.eval_shape(learn, state)
    assert jax.tree.structure(learned) == jax.tree.structure(state)
    shapes = [[x.shape for x in jax.tree.leaves(each)] for each in (learned, state)]
    assert shapes[0] == shapes[1]


def test_muzero_resumes_as_if_it_had_not_stopped(muzero, tmp_path):
    small = {"groups": 1, "width": 8, "simulations": 3, "batch": 4, "unroll": 2, "warmup": 16}
    how = {"envs": 4, "learn": 1, "seeds": 1, "evaluate_episodes": 2, "quiet": True, **small}
    game = "tictactoe:self"
    sterling.train(MUZERO, game, steps=64, out=tmp_path / "run", **how)
    whole = sterling.train(MUZERO, game, steps=128, out=tmp_path / "whole", **how)
    resumed = sterling.resume(tmp_path / "run", steps=128, quiet=True)
    leaves = [jax.tree.leaves(run.agent.state) for run in (resumed, whole)]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_array_equal(one, other)


def test_muzero_says_what_to_install_for_its_search(monkeypatch):
    monkeypatch.setitem(sys.modules, "mctx", None)
    with pytest.raises(Mistake, match=r"searches with mctx. Install it: .*sterling-rl\[search\]"):
        runpy.run_path(str(MUZERO))


@pytest.mark.slow
def test_muzero_learns_tic_tac_toe_against_itself():
    """Against the perfect player random moves earn -0.9, perfect ones 0."""
    how = {"steps": 25_000, "envs": 32, "seeds": [1], "evaluate_episodes": 100, "quiet": True}
    run = sterling.train(MUZERO, "tictactoe:self", **how)
    assert min(run.result["final"]["return"]["per_seed"]) > -0.65


def test_tdmpc2_plans_are_its_memory_and_an_update_keeps_the_form_of_its_state():
    """By shapes alone: of two envs, a box of (2, 1) numbers, and sequences of three rows."""
    tdmpc2 = user_imports.load(TDMPC2)
    config = tdmpc2.Config(width=16, groups=2, samples=9, elites=4)
    box = spaces.Box(-1.0, 1.0, (2, 1), np.float32)
    spec = Spec(spaces.Box(-1.0, 1.0, (3,), np.float32), box)
    key = jax.random.key(0)
    state = jax.eval_shape(lambda key: tdmpc2.init(key, spec, config), key)
    plan = jax.eval_shape(lambda state, key: tdmpc2.memory(state, 2, key), state, key)
    assert plan.shape == (2, 3, 2)
    asked = tdmpc2.needs(config)  # on random steps alone as many updates as there are of them
    assert [asked.updates_of(n) for n in range(4)] == [0, 1_001, 1_002, 1_003]

    def act(state, plan, key):
        none = jnp.zeros(2)
        past = Past(plan, jnp.zeros((2, 2, 1)), none, none, jnp.ones(2, bool))
        return tdmpc2.recall(state, past, jnp.zeros((2, 3)), key, True)

    action, after, _ = jax.eval_shape(act, state, plan, key)
    assert (action.shape, after.shape) == ((2, 2, 1), plan.shape)

    def learn(state, key):
        obs, none = jnp.zeros((5, 3, 3)), jnp.zeros((5, 3))
        rows = Record(obs, jnp.zeros((5, 3, 2, 1)), none, none, obs, none > 0, none == 0)
        return tdmpc2.learn(state, rows, key)[0]

    learned = jax.eval_shape(learn, state, key)
    assert jax.tree.structure(learned) == jax.tree.structure(state)
    for one, other in zip(jax.tree.leaves(learned), jax.tree.leaves(state), strict=True):
        assert getattr(one, "shape", None) == getattr(other, "shape", None)


@pytest.mark.slow
def test_tdmpc2_learns_pendulum_in_few_steps():
    """Random policies earn about -1200; four seeds earned -87, -130, -590 and -179."""
    sizes = {"width": 64, "samples": 64, "batch": 128, "lr": 1e-3, "quiet": True}
    how = {"steps": 1_500, "warmup": 1_000, "seeds": 1, "evaluate_episodes": 3}
    run = sterling.train(TDMPC2, "Pendulum-v1", **how, **sizes)
    assert run.result["final"]["return"]["per_seed"][0] > -600
