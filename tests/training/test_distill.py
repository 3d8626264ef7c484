"""A student that observes less imitates a teacher that observes more."""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.assembly.guide_policy import load_guides
from sterling.types import Mistake

SMALL = {"evaluate_episodes": 16, "preset": False, "envs": 8}
FIRST = {"length": 16, "minibatch": 64, "width": 16, "epochs": 4, "lr": 5e-3, "gamma": 0.8}
STUDENT = {"warmup": 256, "capacity": 4_096, "batch": 64, "width": 32, "lr": 3e-3}


class Hints:
    """The right action is the sign of a secret number; "clue" says it rightly in 3 of 4 episodes.

    Who sees the secret earns 1, who sees the clue alone 0.75.
    """

    obs = spaces.Dict(
        {"clue": spaces.Box(-1, 1, (1,), np.float32), "secret": spaces.Box(-1, 1, (1,), np.float32)}
    )
    action = spaces.Discrete(2)

    def reset(self, key):
        which, honest = jax.random.split(key)
        secret = jnp.where(jax.random.bernoulli(which), 1.0, -1.0)
        clue = jnp.where(jax.random.bernoulli(honest, 0.75), secret, -secret)
        state = jnp.stack([secret, clue])
        return state, self.seen(state)

    def seen(self, state):
        return {"secret": state[:1], "clue": state[1:]}

    def step(self, state, action, key):
        reward = (action == (state[0] > 0).astype(action.dtype)).astype(jnp.float32)
        return state, self.seen(state), reward, jnp.ones((), bool), jnp.zeros((), bool)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    out = tmp_path_factory.mktemp("teacher") / "run"
    run = sterling.train("ppo", Hints, steps=20_000, seeds=2, out=out, **SMALL, **FIRST)
    assert run.result["final"]["return"]["estimate"] == 1.0
    return out


def student(teacher, **more):
    how = {
        "steps": 4_096,
        "seeds": 2,
        "obs": "clue",
        "teacher": teacher,
        **SMALL,
        **STUDENT,
        **more,
    }
    how["evaluate_episodes"] = 400
    return sterling.train("distill", Hints, **how)


@pytest.mark.slow
def test_distilled_student_learns_the_teachers_action_from_partial_obs(teacher, tmp_path):
    run = student(teacher, out=tmp_path / "run")
    for clue, right in ((-1.0, 0), (1.0, 1)):
        assert run.policy({"clue": np.float32([clue])}) == right
    taught = json.loads((tmp_path / "run/result.json").read_text())["taught"]
    assert taught["teacher"]["estimate"] == 1.0
    assert taught["difference"]["estimate"] == pytest.approx(-0.25, abs=0.08)
    assert taught["difference"]["low"] < -0.25 < taught["difference"]["high"]
    own = run.result["final"]["return"]["per_seed"]
    np.testing.assert_allclose(np.subtract(own, 1.0), taught["difference"]["per_seed"], atol=1e-6)


@pytest.mark.slow
def test_distilled_student_with_full_obs_matches_the_teachers_return(teacher):
    run = student(teacher, obs="", steps=2_048)
    assert run.result["taught"]["difference"]["per_seed"] == [0.0, 0.0]


@pytest.mark.slow
def test_distill_rollout_acts_with_the_teacher_first_then_the_student(teacher):
    """Rows of the warm-up are the teacher's; all are labelled with what it would have done."""
    run = student(teacher, steps=2_048, seeds=1)
    first = build_first_phase(run.settings, warm=False)
    world = first.source.world
    assert world.spec.unseen == ("secret",)
    keys = random_keys.for_seeds(first.seeds, "test", 0)
    rollouts = first.source.source.with_length(64)
    after, early = rollouts.live(run.agent, keys)
    _, late = after.live(run.agent, keys)
    for rows, acts in ((early, True), (late, False)):
        lived = np.asarray(rows.mask)
        right = np.asarray(rows.obs["secret"][..., 0] > 0)[lived]
        labels = np.asarray(rows.extras["teacher_action"])[lived]
        np.testing.assert_array_equal(labels, right)
        taken = np.asarray(rows.action)[lived][: 32 * 8 // 2]
        assert (taken == right[: len(taken)]).all() == acts


@pytest.mark.slow
def test_distill_seed_uses_the_teacher_of_the_same_seed(teacher):
    """Alone as among others; a seed that the teacher has not gets one in turn."""
    world = types.SimpleNamespace(spec=sterling.load(teacher, environment=Hints).world().spec)
    settings = sterling.load(teacher, environment=Hints).settings
    found = sterling.load(teacher, environment=Hints).agent.state.nets.value.layers[0].weight
    chosen = dataclasses.replace(settings, seeds=(1, 5, 0))
    loaded = load_guides(chosen, teacher, world).state.nets.value.layers[0].weight
    np.testing.assert_array_equal(loaded, found[np.array([1, 1, 0])])


@pytest.mark.slow
def test_distill_run_resumes_and_loads(teacher, tmp_path):
    student(teacher, out=tmp_path / "run", steps=512)
    longer = sterling.resume(tmp_path / "run", steps=1_024, environment=Hints)
    assert longer.result["steps"] == 1_024
    loaded = sterling.load(tmp_path / "run", environment=Hints)
    assert loaded.settings.guide.how == "teacher"
    assert loaded.evaluate(8)["return"] == longer.evaluate(8)["return"]


@pytest.mark.parametrize(
    ("algorithm", "options", "said"),
    [
        ("distill", {}, "add --teacher RUN"),
        ("sac", {"teacher": "runs/x"}, "A teacher is for distill"),
        ("distill", {"teacher": 3}, "teacher must be the folder of a run; got 3"),
        ("distill", {"teacher": "runs/none"}, "runs/none"),
    ],
)
def test_impossible_distill_options_are_refused(algorithm, options, said):
    with pytest.raises(Mistake, match=said):
        sterling.train(algorithm, "CartPole-v1", steps=2_048, **options)
