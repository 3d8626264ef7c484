"""The one loop: collect, then draw, learn, heed.

    source, draws  = source.collect(agent, key)       # once an iteration: act, dream, converse
    # seed by seed, for each kind of batch that is due, so many times (training/agent.py):
    batch          = draws.draw(feed, ..., chance)    # one update's batch
    state, signals = algorithm.learn(state, batch, key)
    heard          = draws.heed(feed, heard, signals, batch)   # what was found out
    # then the source is told
    source         = source.hearing(heard)

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
from jaxtyping import Array, Int, Key, PyTree

from sterling import keys
from sterling.experience.draws import Draws
from sterling.training.agent import Agent
from sterling.training.programs import quickly


class Run(eqx.Module):
    """A whole run; ``iteration`` counts collect-and-learn rounds and indexes all randomness."""

    agent: Agent
    source: Any
    seeds: Int[Array, "seed"]
    iteration: Int[Array, ""]


def stored(run: Run) -> Run:
    """What of a run is written: everything that cannot be had again (see each source)."""
    return Run(run.agent, run.source.stored(), run.seeds, run.iteration)


def restored(saved: Run, fresh: Run) -> Run:
    """``saved`` with what was not stored from ``fresh``."""
    return Run(saved.agent, saved.source.restored(fresh.source), saved.seeds, saved.iteration)


def as_planned(run: Run, fresh: Agent) -> Run:
    """``run`` with the length of its schedules from ``fresh``: a larger budget than it had."""
    if not hasattr(fresh.state, "planned"):
        return run
    agent = eqx.tree_at(lambda agent: agent.state.planned, run.agent, fresh.state.planned)
    return Run(agent, run.source, run.seeds, run.iteration)


def given_away(run: Run) -> bool:
    """Whether rounds that were broken off have already used up the run's arrays."""
    leaves = jax.tree.leaves(run)
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def iterate(run: Run) -> tuple[Run, dict[str, Array]]:
    """One collect-and-learn round. Metrics are ``(seed,)``."""
    run, metrics, _ = lived(run)
    return run, metrics


def lived(run: Run) -> tuple[Run, dict[str, Array], Draws]:
    """One collect-and-learn round, its metrics, and what was learned from."""
    keys_of = {name: keys.at(run.seeds, name, run.iteration) for name in ("draw", "learn")}
    source, draws = run.source.collect(run.agent, keys_of["draw"])
    agent, heard, metrics = _learn(run.agent, draws, keys_of, run.iteration)
    source = source.hearing(heard)
    return Run(agent, source, run.seeds, run.iteration + 1), metrics, draws


def advance(
    run: Run, iterations: int, sums: dict[str, Any] | None = None
) -> tuple[Run, dict[str, Any]]:
    """``iterations`` rounds; their metrics are added to ``sums`` (default: 0), per seed, one round
    after another: however many calls make them, the sums are the same.

    The passed run is used up: its arrays are given to the new one.
    """
    if run.source.traced:
        return program()(run, sums or _nothing(run), np.int32(iterations))
    history = [sums] if sums else []
    for _ in range(iterations):
        run, metrics = iterate(run)
        history.append(metrics)
    if not history:
        return run, {}
    names = history[0]
    return run, {name: sum(np.asarray(metrics[name]) for metrics in history) for name in names}


@jax.jit  # for worlds on the host; inside a compiled program this changes nothing
def _learn(
    agent: Agent, draws: Draws, keys: dict[str, Key[Array, "seed"]], iteration: Int[Array, ""]
) -> tuple[Agent, PyTree, dict[str, Array]]:
    return agent.learn(draws, keys, iteration)


@cache
def program() -> Any:
    """``advance`` for worlds that can be traced, compiled once for all runs of a form."""
    return jax.jit(_compiled, donate_argnums=0, compiler_options=quickly())


def _compiled(
    run: Run, sums: dict[str, Array], iterations: Int[Array, ""]
) -> tuple[Run, dict[str, Array]]:
    """One program for any number of iterations (zero compiles it and changes nothing)."""

    def body(_: Array, carry: tuple[Run, dict[str, Array]]) -> tuple[Run, dict[str, Array]]:
        run, sums = carry
        run, metrics = _once(run)
        return run, jax.tree.map(jnp.add, sums, metrics)

    return jax.lax.fori_loop(0, iterations, body, (run, sums))


_once = jax.jit(iterate)  # traced for its metrics' shapes, and not again for the loop's body


def _nothing(run: Run) -> dict[str, Array]:
    """Metrics of no iterations."""
    shapes = jax.eval_shape(lambda run: _once(run)[1], run)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
