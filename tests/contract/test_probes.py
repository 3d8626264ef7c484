"""Every algorithm finds the known values and actions of the probe worlds."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_language
from cases import CASES

import sterling
from sterling.algorithms import ALGORITHMS
from sterling.envs.probe import probe
from sterling.training import loop
from sterling.training.programs import EMITTERS, LEVEL


def runs() -> Iterator[Any]:
    """Every algorithm on every world; in ``make test`` each on "both", which has an observation, a
    choice and a delay, and one with each kind of experience that it gathers also on "limits", in
    which episodes are cut."""
    for case in CASES.values():
        first = {f"both{case.spaces[-1]}"}
        if case.name in ("ppo", "dqn"):
            first.add(f"limits{case.spaces[0]}")
        for world in case.worlds:
            marks = () if world in first else (pytest.mark.slow,)
            yield pytest.param(case.name, world, marks=marks)


def test_every_listed_algorithm_has_a_case():
    assert set(CASES) | set(test_language.NAMES) == set(ALGORITHMS)


@pytest.fixture
def _runs_for_long(monkeypatch):
    """Programs are compiled at LLVM's first level: here they run for longer than that takes."""
    monkeypatch.setattr(loop, "quickly", lambda: {LEVEL: 1, EMITTERS: False})
    loop.program.cache_clear()
    yield
    loop.program.cache_clear()


@pytest.mark.usefixtures("_runs_for_long")
@pytest.mark.parametrize(("name", "world"), list(runs()))
def test_probe_world_is_solved(name, world, written_logs):
    case, programs = CASES[name], loop.program()._cache_size()
    run = sterling.train(
        name,
        f"probe:{world}",
        **case.budget(world, case.steps or case.updates * case.envs, written_logs),
        envs=case.envs,
        seeds=2,
        evaluate_episodes=0,
        preset=False,
        **case.fields,
    )
    assert loop.program()._cache_size() == programs + 1  # compiled once, whatever it goes on from
    answer = probe(world).solution(case.fields.get("gamma", 0.8))
    agent, obs = run.agent, jnp.asarray(answer.obs)
    if hasattr(agent.algorithm, "value"):
        value = jax.vmap(lambda state: agent.algorithm.value(state, obs))(agent.state)
        expected = np.broadcast_to(answer.value, value.shape)
        np.testing.assert_allclose(value, expected, atol=0.1 * max(1.0, np.abs(expected).max()))
    if answer.action is not None:
        action = [list(actions(run.player(seed), answer.obs)) for seed in (0, 1)]
        np.testing.assert_allclose(action, np.stack([answer.action] * 2), atol=0.2)


def actions(player, observations):
    """What is done where an episode begins with each of the observations."""
    for obs in observations:
        yield player(obs)
        player.notice(0.0, True)
