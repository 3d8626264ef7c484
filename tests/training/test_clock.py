"""What a run's work took: compiling counts once, wherever it happens."""

import time
import types

import jax
import jax.numpy as jnp
import pytest

import sterling
from sterling.training.runtime import timing as clocks
from sterling.training.runtime.timing import Clock


def test_nested_compile_time_is_counted_once():
    """Tracing a function holds the tracing of those it calls."""

    @jax.jit
    def inner(x):
        time.sleep(0.2)  # while it is traced
        return jnp.sin(x)

    @jax.jit
    def outer(x):
        return inner(x) + 1.0

    clock, begun = Clock({"seconds": 5.0, "compile_seconds": 1.0}), time.monotonic()
    with clock.running():
        outer(jnp.zeros(3)).block_until_ready()
        time.sleep(0.2)
    compiled, whole = clock.compile_seconds - 1.0, clock.seconds - 5.0
    assert 0.2 < compiled < whole - 0.2
    assert whole <= time.monotonic() - begun
    with clock.running():
        outer(jnp.zeros(3)).block_until_ready()
    assert clock.compile_seconds == compiled + 1.0  # known by then
    assert Clock(clock.to_json()).to_json() == clock.to_json()


@pytest.mark.slow
def test_host_environment_run_reports_compile_seconds():
    """Its program is not compiled beforehand, but on the way."""
    run = sterling.train(
        "ppo",
        "gymnasium:CartPole-v1",
        steps=64,
        envs=2,
        seeds=1,
        length=16,
        minibatch=32,
        evaluate_episodes=0,
        preset=False,
    )
    assert 0.0 < run.result["compile_seconds"] < run.result["wall_seconds"]


def test_clock_starts_at_zero_seconds():
    assert Clock({}).to_json() == {"seconds": 0.0, "compile_seconds": 0.0}


def test_compile_timer_merges_overlapping_events(monkeypatch):
    """By hand: 1 to 3 lies within 1 to 4, which it begins with; 6 to 7 is apart: 3 + 1 seconds."""
    ends = iter([3.0, 4.0, 7.0])
    monkeypatch.setattr(clocks, "time", types.SimpleNamespace(monotonic=lambda: next(ends)))
    with clocks._CompileTimer() as compiling:
        for seconds in (2.0, 3.0, 1.0):
            compiling._heard(f"{clocks.COMPILE_EVENTS}stage", seconds)
        compiling._heard("/jax/elsewhere", 100.0)
    assert compiling.seconds == 4.0
