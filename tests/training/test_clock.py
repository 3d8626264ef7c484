"""What a run's work took: compiling counts once, wherever it happens."""

import time

import jax
import jax.numpy as jnp

import sterling
from sterling.training.clock import Clock


def test_compiling_is_a_part_of_the_time_and_counts_once():
    """Tracing a function holds the tracing of those it calls."""

    @jax.jit
    def inner(x):
        time.sleep(0.2)  # while it is traced
        return jnp.sin(x)

    @jax.jit
    def outer(x):
        return inner(x) + 1.0

    clock = Clock({"seconds": 5.0, "compile_seconds": 1.0})
    with clock.running():
        outer(jnp.zeros(3)).block_until_ready()
        time.sleep(0.2)
    compiled, whole = clock.compile_seconds - 1.0, clock.seconds - 5.0
    assert 0.2 < compiled < whole - 0.2
    with clock.running():
        outer(jnp.zeros(3)).block_until_ready()
    assert clock.compile_seconds == compiled + 1.0  # known by then
    assert Clock(clock.to_json()).to_json() == clock.to_json()


def test_a_world_of_the_host_is_told_what_compiling_took():
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
