"""The probe worlds' answers, found by playing them."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import gymnasium.utils.env_checker
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import random_keys
from sterling.envs.gymnasium_export import as_gymnasium
from sterling.envs.probes import objectives_probe
from sterling.envs.probes.level_probe import LevelState, make_level_probe
from sterling.envs.probes.probe_worlds import (
    CONSTRAINT,
    CUT_AFTER,
    MEMORY_KINDS,
    NAMES,
    OTHER_PROBES,
    make,
    make_probe,
)
from sterling.envs.traced_world import TracedWorld
from sterling.problem.channels import Channel, channel_columns
from sterling.types import Mistake

GAMMA = 0.8


def best_action(task: Any, obs: np.ndarray) -> np.ndarray:
    """The solution's action for observations ``(env, 1)``."""
    solution = task.solution(GAMMA)
    shape = (len(obs), *task.action.shape)
    if solution.action is None:
        return np.zeros(shape, np.float32 if task.continuous else np.int32)
    return solution.action[np.argmin(np.abs(obs - solution.obs.T), 1)].reshape(shape)


def play(name: str, policy: Any, steps: int = 60, envs: int = 8) -> dict[str, np.ndarray]:
    """Rows ``(time, env)`` of what happens under ``policy(obs) -> action``."""
    world = TracedWorld(make_probe(name), (0,), envs)
    start = jax.jit(lambda: world.reset(random_keys.for_seeds(jnp.zeros(1, jnp.int32), "reset", 0)))

    @jax.jit
    def move(state: Any, action: Any, time: Any) -> Any:
        return world.step(
            state, action[None], random_keys.for_seeds(jnp.zeros(1, jnp.int32), "world", time)
        )

    state, obs = start()
    rows: list[Any] = []
    for time in range(steps):
        state, step = move(state, policy(np.asarray(obs[0])), np.int32(time))
        answer = (step.reward, step.discount, step.last, step.mask)
        rows.append([np.asarray(obs)[0, :, 0], *(np.asarray(x)[0] for x in answer)])
        obs = step.obs
    names = ("obs", "reward", "discount", "last", "mask")
    made = {part: np.stack(x) for part, x in zip(names, zip(*rows, strict=True), strict=True)}
    return {**made, "next_obs": np.concatenate([made["obs"][1:], np.asarray(obs)[:, :, 0]])}


@pytest.mark.parametrize(
    "name", [each for each in NAMES if make_probe(each).kind not in (*MEMORY_KINDS, CONSTRAINT)]
)
def test_probe_solution_satisfies_the_bellman_equation(name: str) -> None:
    task = make_probe(name)
    rows = play(name, lambda obs: best_action(task, obs))
    solution = task.solution(GAMMA)
    value = dict(zip(solution.obs[:, 0].tolist(), solution.value.tolist(), strict=True))
    ahead = np.vectorize(lambda obs: value.get(float(obs), np.nan))(rows["next_obs"])
    target = rows["reward"] + GAMMA * np.where(
        rows["discount"] == 0.0, 0.0, rows["discount"] * ahead
    )
    here = np.vectorize(value.get)(rows["obs"])
    np.testing.assert_allclose(target[rows["mask"]], here[rows["mask"]], rtol=1e-5)
    assert set(np.unique(rows["obs"][rows["mask"]])) == set(value)  # every observation was met


@pytest.mark.parametrize("name", ["action", "both", "action-continuous", "both-continuous"])
def test_probe_best_action_beats_any_other(name: str) -> None:
    task = make_probe(name)

    def other(obs: np.ndarray) -> np.ndarray:
        best = best_action(task, obs)
        return best - 0.3 * np.sign(best) if task.continuous else 1 - best

    rows = play(name, other, steps=10)
    assert (rows["reward"][rows["mask"]] < 1.0 - 0.05).all()


def test_cut_probe_value_differs_if_truncation_is_taken_for_termination() -> None:
    rows = play("cut", lambda obs: np.zeros(len(obs), np.int32), envs=1)
    assert rows["last"].any()
    assert (rows["discount"] == 1.0).all()
    mistaken = sum(GAMMA**k for k in range(CUT_AFTER))  # the most that four rewards are worth
    assert make_probe("cut").solution(GAMMA).value[0] > 1.5 * mistaken


def test_limits_probe_has_terminations_and_truncations() -> None:
    rows = play("limits", lambda obs: np.zeros(len(obs), np.int32))
    left, right = rows["last"] & (rows["obs"] < 0), rows["last"] & (rows["obs"] > 0)
    assert left.any()
    assert right.any()
    assert (rows["discount"][left] == 1.0).all()
    assert (rows["discount"][right] == 0.0).all()


@pytest.mark.parametrize("form", ["", "-continuous"])
def test_constraint_probe_optimum_costs_the_limit(form: str) -> None:
    task, limit = make_probe(f"constraint{form}"), 0.18
    seen = jnp.linspace(-1.0, 1.0, 10_001)[:, None]
    right = jnp.full((10_001, 1), 2.0 * limit**0.5 - 1.0)
    if not form:
        right = (0.5 * (seen[:, 0] + 1.0) < (2.0 * limit) ** 0.5).astype(jnp.int32)

    def move(seen: Any, action: Any) -> Any:
        state = task.reset(jax.random.key(0))[0]
        state = dataclasses.replace(state, seen=seen)
        _, _, reward, ended, _, reported = task.step(state, action, jax.random.key(1))
        return reward, ended, reported["cost"]

    reward, ended, cost = jax.vmap(move)(seen, right)
    assert ended.all()
    np.testing.assert_allclose(
        (reward.mean(), cost.mean()), (task.best_return(limit), limit), atol=1e-3
    )


def every_action(continuous: bool) -> Any:
    """All that can be done, or much of it."""
    return jnp.linspace(-1.0, 1.0, 401)[:, None] if continuous else jnp.arange(2, dtype=jnp.int32)


@pytest.mark.parametrize("name", ["levels", "levels-continuous"])
def test_level_probe_answers_are_the_best_of_all_actions(name: str) -> None:
    task = make_level_probe(name)
    answers = task.answers(np.array([-0.9, -0.5, 0.6, 1.0]), GAMMA)
    many = every_action(task.continuous)
    for obs, value, right, decides in zip(*answers, strict=True):
        state = LevelState(jnp.float32(obs[0]), jnp.asarray(bool(decides)))
        moved = jax.vmap(lambda action: task.step(state, action, jax.random.key(0)))  # noqa: B023
        after, seen, reward, ended, _, reported = moved(many)
        assert (np.asarray(ended) == decides).all()
        assert (np.asarray(reported["begun"]) == obs[0]).all()
        if not decides:
            np.testing.assert_array_equal(seen, np.tile([obs[0], 1.0], (len(many), 1)))
            assert not np.asarray(reward).any()
            assert value == pytest.approx(GAMMA * abs(obs[0]))
            assert np.asarray(after.second).all()
            continue
        assert float(reward.max()) == pytest.approx(value, abs=1e-4)
        assert float(many[reward.argmax()].squeeze()) == pytest.approx(right, abs=0.01)


@pytest.mark.parametrize("name", ["levels-hidden", "levels-hidden-continuous"])
def test_hidden_level_probe_best_returns_are_those_of_all_actions(name: str) -> None:
    task, levels = make_level_probe(name), np.array([-0.9, -0.5, 0.6, 0.7, 1.0], np.float32)
    key = jax.random.key(0)

    def paid(level: Any, action: Any) -> Any:
        return task.step(LevelState(level, jnp.ones((), bool)), action, key)[2]

    many = jnp.linspace(-1.0, 1.0, 401)[:, None] if task.continuous else jnp.arange(2)
    table = jax.vmap(lambda level: jax.vmap(lambda action: paid(level, action))(many))(levels)
    alike, known = task.best_returns(levels)
    assert alike == pytest.approx(float(table.mean(0).max()), abs=1e-4)
    assert known == pytest.approx(float(table.max(1).mean()), abs=1e-4)
    shown = [task.begin(jnp.float32(level), key)[1] for level in levels]
    np.testing.assert_array_equal(shown, np.zeros((len(levels), 2)))


def test_level_probe_edit_changes_a_level_slightly() -> None:
    task, each = make_level_probe("levels"), jax.random.split(jax.random.key(0), 200)
    level = jax.vmap(task.level)(each)
    assert 60 < int((level > 0).sum()) < 140
    edited = jax.vmap(task.edit)(level, jax.random.split(jax.random.key(1), 200))
    assert 60 < int((jnp.sign(edited) == jnp.sign(level)).sum()) < 140
    assert ((jnp.abs(edited) >= 0.5) & (jnp.abs(edited) <= 1.0)).all()
    change = jnp.abs(jnp.abs(edited) - jnp.abs(level))
    assert 0.01 < float(change.mean()) < float(change.max()) <= 0.1001


@pytest.mark.parametrize("name", ["objectives", "objectives-continuous"])
def test_objectives_probe_answers_are_the_best_of_all_actions(name: str) -> None:
    task = objectives_probe.make_objectives_probe(name)
    many = every_action(task.continuous)

    @jax.jit
    def found(weight: Any) -> Any:
        state = jnp.stack([weight, 1.0 - weight])
        step = jax.vmap(lambda action: task.step(state, action, jax.random.key(0)))
        _, _, reward, _, _, reported = step(many)
        best = reward.argmax()
        return reward[best], many[best].squeeze(), reported["objectives"][best]

    answers = task.answers()
    for preference, value, right in zip(answers.obs["preference"], *answers[1:], strict=True):
        best, action, _ = found(jnp.float32(preference[0]))
        assert float(best) == pytest.approx(value, abs=1e-4)
        assert float(action) == pytest.approx(right, abs=0.01)
    weights = (np.arange(999, dtype=np.float32) + 0.5) / 999
    reward, _, parts = map(np.asarray, jax.vmap(found)(jnp.asarray(weights)))
    means = {"return": reward.mean(), "objectives.gain": parts[:, 0].mean()}
    means["objectives.cost"] = parts[:, 1].mean()
    assert means == pytest.approx(objectives_probe.BEST_MEANS, abs=2e-3)


def test_channel_parts_may_have_separate_directions() -> None:
    two = Channel(parts=("gain", "cost"), directions=(1, -1))
    assert {name: each.better for name, each in channel_columns({"of": two}).items()} == {
        "of.gain": 1, "of.cost": -1,
    }  # fmt: skip
    same = channel_columns({"of": Channel(parts=("a", "b"), better=-1), "one": Channel(better=1)})
    assert {name: each.better for name, each in same.items()} == {"of.a": -1, "of.b": -1, "one": 1}
    with pytest.raises(Mistake, match="one direction for each part"):
        Channel(parts=("gain", "cost"), directions=(1,))
    with pytest.raises(Mistake, match="better=2 is not valid"):
        Channel(parts=("gain", "cost"), directions=(1, 2))


@pytest.mark.parametrize("name", OTHER_PROBES)
def test_other_probes_run_as_environments(name: str) -> None:
    world = TracedWorld(make(name)[0], (0, 1), 3)
    _, obs = world.reset(random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "reset", 0))
    assert world.spec.obs.contains(jax.tree.map(lambda x: np.asarray(x)[0, 0], obs))


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_accepts_every_probe_world(name: str) -> None:
    env = as_gymnasium(make_probe(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as which the checker says what is wrong but does not break
        gymnasium.utils.env_checker.check_env(env, skip_render_check=True)
    assert env.observation_space.contains(env.reset(seed=0)[0])
