"""Moments on the host: when they come, that each comes once, and that nothing else changes."""

import os
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import sterling
from sterling import random_keys
from sterling.experience.batch_draws import SourceWrapper
from sterling.training import host_visits
from sterling.training.assembly import build_run
from sterling.training.config.resolve_settings import resolve_settings

HOW = {"envs": 2, "warmup": 10, "batch": 8, "width": 4, "depth": 1, "capacity": 500, "collect": 1}
HOW |= {"preset": False, "evaluate_episodes": 0, "log_every": 14, "strategy": "map"}
EVERY = 5  # iterations of two steps


class Guest(SourceWrapper, eqx.Module):
    """Writes down what it was told at each visit."""

    source: eqx.Module
    told: jax.Array  # (seed, visit): bits of its key
    count: jax.Array

    visits = EVERY

    def visit(self, agent, keys):
        bits = jax.vmap(jax.random.bits)(keys)
        told = self.told.at[:, self.count].set(bits)
        return Guest(self.source, told, self.count + 1), agent

    def collect(self, agent, keys, due):
        source, draws = self.source.collect(agent, keys, due)
        return Guest(source, self.told, self.count), draws


@pytest.fixture
def _visited(monkeypatch):
    make = build_run.source_builder

    def maker(settings, world, room):
        create = make(settings, world, room)

        def guest(keys, agent):
            told = jnp.zeros((len(settings.seeds), 40), jnp.uint32)
            return Guest(create(keys, agent), told, jnp.zeros((), jnp.int32))

        return guest

    monkeypatch.setattr(build_run, "source_builder", maker)


def train(**options):
    return sterling.train("dqn", "probe:both", steps=94, **{"seeds": [0, 1], **HOW, **options})


def told(path):
    tree = load_file(max((path / "checkpoints").iterdir()) / "tree.safetensors")
    return {name.rpartition("/")[2]: x for name, x in tree.items() if "source/told" in name
            or name.endswith("source/count")}  # fmt: skip


class Stop:
    """A sink that asks the process to save and leave at a row; its rows' steps."""

    def __init__(self, row=0):
        self.row, self.steps = row, []

    def write(self, row):
        self.steps.append(row["step"])
        if len(self.steps) == self.row:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self):
        pass


@pytest.mark.usefixtures("_visited")
def test_host_visits_precede_their_iterations_and_keep_metric_rows(tmp_path):
    sink = Stop()
    train(out=tmp_path / "run", sinks=[sink])
    found = told(tmp_path / "run")
    assert found["count"] == 9  # of 42 iterations: 0, 5 ... 40
    assert sink.steps == [24, 38, 52, 66, 80, 94]
    expected = [
        random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "visit", 5 * i) for i in range(9)
    ]
    bits = np.stack([jax.vmap(jax.random.bits)(each) for each in expected], 1)
    np.testing.assert_array_equal(found["told"][:, :9], bits)


@pytest.mark.usefixtures("_visited")
@pytest.mark.parametrize(
    "row", [pytest.param(1, marks=pytest.mark.slow), 5]
)  # in between, and at iteration 35, which has a visit
def test_host_visit_is_made_exactly_once_on_resume(row, tmp_path):
    whole = train(out=tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(out=tmp_path / "broken", sinks=[Stop(row)])
    resumed = sterling.resume(tmp_path / "broken")
    for one, other in zip(*(jax.tree.leaves(x.agent) for x in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(one, other)
    for name, each in told(tmp_path / "whole").items():
        np.testing.assert_array_equal(each, told(tmp_path / "broken")[name])


@pytest.mark.usefixtures("_visited")
def test_host_visits_are_counted_once_per_iteration_and_saved():
    settings = resolve_settings("dqn", "probe:both", steps=94, preset=False, fields={"warmup": 10})
    run = build_run.build_first_phase(settings, warm=False)

    def at(iteration):
        return eqx.tree_at(lambda run: run.iteration, run, jnp.asarray(iteration, jnp.int32))

    had = host_visits.Visits({})
    once = had.made(at(10))
    assert int(once.source.count) == 1
    assert int(had.made(once).source.count) == 1
    assert int(host_visits.Visits(had.to_json()).made(once).source.count) == 1
    assert int(host_visits.Visits({"visited": 5}).made(once).source.count) == 2
    assert int(host_visits.Visits({}).made(at(11)).source.count) == 0
    assert [host_visits.iterations_until_visit(at(10), each) for each in (2, 10)] == [2, 5]
    assert host_visits.iterations_until_visit(at(14), 10) == 1
