"""The one loop: draw, learn, heed.

    source, batch  = source.draw(agent, key)      # experience: act, sample a log, dream, converse
    agent, signals = agent.learn(batch, key)      # one algorithm's update
    source         = source.heed(signals)         # what was found out, told back to the source

Everything that changes during a run is one tree, :class:`Run`: saving is writing it, resuming is
reading it. Where the source can be traced, many iterations are one compiled dispatch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import keys
from sterling.training.agent import Agent
from sterling.training.programs import quickly
from sterling.types import Record, Signals


class Run(eqx.Module):
    """A whole run; ``iteration`` counts collect-and-learn rounds and indexes all randomness."""

    agent: Agent
    source: Any
    seeds: Int[Array, "seed"]
    iteration: Int[Array, ""]


def iterate(run: Run) -> tuple[Run, dict[str, Array]]:
    """One collect-and-learn round. Metrics are ``(seed,)``."""
    draw, learn = (keys.at(run.seeds, purpose, run.iteration) for purpose in ("draw", "learn"))
    source, batch = run.source.draw(run.agent, draw)
    agent, signals = _learn(run.agent, batch, learn)
    source = source.heed(signals)
    return Run(agent, source, run.seeds, run.iteration + 1), signals.metrics


def advance(run: Run, iterations: int) -> tuple[Run, dict[str, Array]]:
    """``iterations`` rounds; metrics are averaged over them, per seed.

    The passed run is used up: its arrays are given to the new one.
    """
    if run.source.traced:
        return program()(run, np.int32(iterations))
    history = []
    for _ in range(iterations):
        run, metrics = iterate(run)
        history.append(metrics)
    return run, jax.tree.map(lambda *values: jnp.asarray(np.stack(values).mean(0)), *history)


@jax.jit  # for worlds on the host; inside a compiled program this changes nothing
def _learn(agent: Agent, batch: Record, keys: Key[Array, "seed"]) -> tuple[Agent, Signals]:
    return agent.learn(batch, keys)


@cache
def program() -> Any:
    """``advance`` for worlds that can be traced, compiled once for all runs of a form."""
    return jax.jit(_compiled, donate_argnums=0, compiler_options=quickly())


def _compiled(run: Run, iterations: Int[Array, ""]) -> tuple[Run, dict[str, Array]]:
    """One program for any number of iterations (zero compiles it and changes nothing)."""

    def body(_: Array, carry: tuple[Run, dict[str, Array]]) -> tuple[Run, dict[str, Array]]:
        run, total = carry
        run, metrics = once(run)
        return run, jax.tree.map(jnp.add, total, metrics)

    once = jax.jit(iterate)  # traced for its shapes, and not again for the loop's body
    shapes = jax.eval_shape(lambda run: once(run)[1], run)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    run, total = jax.lax.fori_loop(0, iterations, body, (run, nothing))
    count = jnp.maximum(iterations, 1).astype(jnp.float32)
    return run, jax.tree.map(lambda value: value / count, total)
