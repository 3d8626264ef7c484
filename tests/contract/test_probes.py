"""Every algorithm finds the known values and actions of the probe worlds."""

import json
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_language
from cases import CASES

import sterling
from sterling import envs, random_keys
from sterling.algorithms import ALGORITHMS, find
from sterling.envs.probes.probe_worlds import make_probe
from sterling.envs.probes.turn_probe import TurnProbe
from sterling.experience.rollouts.rollout import Rollout
from sterling.training import loop

REMEMBERING = [name for name, case in CASES.items() if case.steps and hasattr(find(name), "recall")]

CLIMBS = {  # of those who learn under a limit
    "ppo-lagrangian": {"multiplier_lr": 0.2, "entropy_coef": 0.01},
    "sac-lagrangian": {"multiplier_lr": 0.01},
}


KINDS = {  # of learning; in make test one of each, in test-all every algorithm (see cases.FIRST)
    "ppo": "from rollouts",
    "ippo": "and in teams",
    "maml": "and after adapting to them",
    "openes": "from whole episodes",
    "dqn": "values of choices from a replay",
    "sac": "values and a policy from a replay",
    "mbpo": "and from dreams",
    "pebble": "and from preferences",
    "bc": "by imitation of a log",
    "iql": "values from a log",
    "dt": "stretches of a log",
}


def runs() -> Iterator[Any]:
    """Every algorithm on its worlds; in ``make test`` one of each kind on "both", which has an
    observation, a choice and a delay (who remembers, or learns under a limit, on the worlds further
    below), and one with each kind of experience that it gathers also on "limits", in which episodes
    are cut."""
    for case in CASES.values():
        first = {f"both{case.spaces[-1]}"} if case.name in KINDS else set()
        if case.name in ("ppo", "dqn"):
            first.add(f"limits{case.spaces[0]}")
        for world in case.worlds:
            marks = () if world in first else (pytest.mark.slow,)
            yield pytest.param(case.name, world, marks=marks)


def test_every_listed_algorithm_has_a_case():
    assert set(CASES) | set(test_language.NAMES) | test_language.TAUGHT == set(ALGORITHMS)
    assert set(KINDS) <= set(CASES)
    assert set(CLIMBS) == {name for name in CASES if hasattr(find(name).Config, "cost_limit")}


@pytest.mark.usefixtures("runs_for_long")
@pytest.mark.parametrize(("name", "world"), list(runs()))
def test_probe_values_and_actions_are_solved_by_every_algorithm(name, world, written_logs):
    case = CASES[name]
    budget = case.budget(world, case.steps or case.updates * case.envs, written_logs)
    programs = loop.compiled_advance().jitted._cache_size()
    run = sterling.train(
        name,
        f"probe:{world}",
        **budget,
        envs=case.envs,
        seeds=2,
        evaluate_episodes=0,
        preset=False,
        **case.fields,
    )
    assert (
        loop.compiled_advance().jitted._cache_size() == programs + 1
    )  # compiled once, whatever it goes on from
    answer = make_probe(world).solution(case.fields.get("gamma", 0.8))
    agent, obs = run.agent, jax.tree.map(jnp.asarray, answer.obs)
    if hasattr(agent.algorithm, "recall") and hasattr(agent.algorithm, "value"):
        rows = lived(agent, world, case.envs)
        value = np.asarray(rows.extras["value"])[rows.mask]
        which = np.abs(np.asarray(rows.obs)[rows.mask] - answer.obs[:, 0]).argmin(1)
        expected = answer.value[which]
        np.testing.assert_allclose(value, expected, atol=0.1 * max(1.0, np.abs(expected).max()))
    elif hasattr(agent.algorithm, "value"):
        value = jax.vmap(lambda state: agent.algorithm.value(state, obs))(agent.state)
        expected = np.broadcast_to(answer.value, value.shape)
        np.testing.assert_allclose(value, expected, atol=0.1 * max(1.0, np.abs(expected).max()))
    if answer.action is not None:
        action = [list(actions(run.player(seed), answer.obs)) for seed in (0, 1)]
        np.testing.assert_allclose(action, np.stack([answer.action] * 2), atol=0.2)


@pytest.mark.parametrize("name", ["dqn", pytest.param("ppo", marks=pytest.mark.slow)])
def test_zero_sum_return_alternates_sign_in_the_turn_probe(name):
    case = CASES[name]
    run = sterling.train(
        name, "probe:turns", steps=case.steps, envs=case.envs, seeds=2, evaluate_episodes=0,
        preset=False, **{**case.fields, "gamma": 0.8},
    )  # fmt: skip
    obs, value, best = TurnProbe().solution(0.8)
    found = jax.vmap(lambda state: run.agent.algorithm.value(state, jnp.asarray(obs)))
    values = np.asarray(found(run.agent.state))
    # whoever moves first sees the stake of 1 only as it explores
    np.testing.assert_allclose(values[:, :2], [value[:2]] * 2, atol=0.1)
    assert [list(actions(run.player(seed), obs[:2])) for seed in (0, 1)] == [best[:2]] * 2


PAID = "paid-continuous"


def remembered() -> Iterator[Any]:
    """Who remembers, on the worlds that ask for it; one of each in ``make test``. Not recurrent PPO
    on PAID: about one seed in eight fails there, and rounding, so the CPU, says which."""
    for name in REMEMBERING:
        for form in CASES[name].spaces:
            for kind in ("memory", "paid"):
                quick = (name, kind + form) in (("r2d2", "memory"), ("recurrent-ppo", "memory"))
                marks = () if quick else (pytest.mark.slow,)
                yield pytest.param(name, kind + form, marks=marks)


# kinds of memory beside the GRU; the scan of the linear one in ``make test``. Not listed: the LSTM
# on PAID, whose values some seeds of PPO learn and some do not.
UNITS = [
    ("recurrent-ppo", "memory", "lru"),
    *(
        pytest.param(name, world, unit, marks=pytest.mark.slow)
        for name, world, unit in (
            *(("recurrent-ppo", PAID, "lru"), ("recurrent-ppo", "memory", "lstm")),
            *(("r2d2", "memory", "lru"), ("r2d2", "memory", "lstm")),
            *(("recurrent-ppo", "memory", "s5"), ("r2d2", "memory", "s5")),
        )
    ),
]


@pytest.mark.parametrize(("name", "world", "unit"), UNITS)
@pytest.mark.usefixtures("runs_for_long")
def test_every_recurrent_unit_solves_the_memory_probe(name, world, unit):
    check_memory(name, world, {"memory": unit})


@pytest.mark.parametrize(("name", "world"), list(remembered()))
@pytest.mark.usefixtures("runs_for_long")
def test_recurrent_algorithms_solve_the_memory_probe(name, world):
    check_memory(name, world, {})


def check_memory(name, world, own):
    """Values and actions are those of an agent that knows how its episode began."""
    case = CASES[name]
    calm = {"lr": 2e-3, "log_std": -2.0}  # what is done is seen, and here it says nothing
    calm = {key: x for key, x in calm.items() if key in case.fields} | own
    run = sterling.train(
        name, f"probe:{world}", steps=2 * case.steps, envs=case.envs, seeds=2,
        evaluate_episodes=0, preset=False, **{**case.fields, **calm},
    )  # fmt: skip
    rows = lived(run.agent, world, case.envs)
    truth = make_probe(world).memory_values(case.fields["gamma"])
    value, begins = np.asarray(rows.extras["value"]), np.asarray(rows.extras["begins"])
    tolerance = 0.1 * max(1.0, np.abs(truth).max())
    found = 0
    for seed, env in np.ndindex(2, case.envs):
        for start in np.flatnonzero(begins[seed, :, env]):
            first = float(rows.obs[seed, start, env, 0])
            side = first if world.startswith("paid") else 1.0
            episode = value[seed, start : start + truth.size, env]
            np.testing.assert_allclose(episode, side * truth[: episode.size], atol=tolerance)
            found += 1
            if world.startswith("memory") and start + 1 < value.shape[1]:
                action = np.ravel(rows.action[seed, start + 1, env])[0]
                right = 0.5 * first if world.endswith("continuous") else float(first > 0)
                assert abs(action - right) <= 0.2
    assert found > 20


@pytest.mark.parametrize(
    "name",
    [name if name.startswith("ppo") else pytest.param(name, marks=pytest.mark.slow)
     for name in CLIMBS],
)  # fmt: skip
@pytest.mark.parametrize("form", [pytest.param("", marks=pytest.mark.slow), "-continuous"])
@pytest.mark.usefixtures("runs_for_long")
def test_safe_algorithms_meet_the_cost_limit_with_the_best_return(name, form, tmp_path):
    case, limit = CASES[name], 0.25 if form else 0.125
    steps = case.steps if form else 3 * case.steps
    sterling.train(
        name, f"probe:constraint{form}", steps=steps, envs=case.envs, seeds=2, evaluate_episodes=0,
        preset=False, out=tmp_path / "run", log_every=steps // 20,
        **{**case.fields, **CLIMBS[name], "cost_limit": limit},
    )  # fmt: skip
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    late = [json.loads(row)["data/cost"] for row in rows[-5:]]
    earned = [json.loads(row)["data/return"] for row in rows[-5:]]
    np.testing.assert_allclose(np.mean(late, 0), limit, atol=0.035)
    best = make_probe(f"constraint{form}").best_return(limit)
    np.testing.assert_allclose(np.mean(earned, 0), best, atol=0.06)


class Judged(eqx.Module):
    """An agent as it acts without exploring, with the values of what it meets."""

    agent: Any

    def memory(self, envs, keys):
        return self.agent.memory(envs, keys)

    def recall(self, past, obs, keys, explore):
        action, memory, _ = self.agent.recall(past, obs, keys, False)
        judge = jax.vmap(self.agent.algorithm.value)
        return action, memory, {"value": judge(self.agent.state, past, obs, keys)}


def lived(agent, world, count, purpose="train"):
    """Twelve steps of the agent's in the world, ``(seed, time, env)``."""
    start = random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "judged", 0)
    made = envs.make(f"probe:{world}", (0, 1), count, purpose=purpose)
    rollout = Rollout.create(made, 12, start, Judged(agent))
    return jax.jit(lambda rollout: rollout.live(Judged(agent), start)[1])(rollout)


def actions(player, observations):
    """What is done where an episode begins with each of the observations."""
    for row in range(len(jax.tree.leaves(observations)[0])):
        yield player(jax.tree.map(lambda x, row=row: x[row], observations))
        player.notice(0.0, True)
