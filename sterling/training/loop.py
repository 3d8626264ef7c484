"""The training loop: collect, then draw a batch, learn and heed for every update.

    source, draws  = source.collect(agent, key, due)  # once per iteration: act, dream, converse
    # for each seed, for each feed that is due, for each of its updates (training/agent.py):
    batch          = draws.draw(feed, ..., sample)    # one update's batch
    state, signals = algorithm.learn(state, batch, key)
    feedback       = draws.heed(feed, feedback, signals, batch)   # such as new priorities
    # at the end of the iteration the source takes over the feedback
    source         = source.with_feedback(feedback)

What a source leaves to ``collect_rest`` is collected while the learner learns, in another thread.

Everything that changes during a run is one tree, :class:`Run`: saving is writing it, resuming is
reading it. Where the source can be traced, many iterations are one compiled dispatch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import random_keys
from sterling.experience.batch_draws import Draws, collect_rest, has_rest
from sterling.experience.stored_rows import with_stored_rows
from sterling.needs.feed import Feed
from sterling.training.agent import Agent, Heard
from sterling.training.runtime.compilation import run_compiler_options
from sterling.training.runtime.program_store import StoredJit, remembered


class Run(eqx.Module):
    """The state of a run; ``iteration`` counts iterations, and is the counter of random keys."""

    agent: Agent
    source: Any
    seeds: Int[Array, "seed"]
    iteration: Int[Array, ""]


def to_checkpoint(run: Run) -> Run:
    """Return what a checkpoint contains: everything that cannot be recomputed (see sources)."""
    agent = run.agent.without_schedules()  # they are in the settings
    return Run(agent, run.source.to_checkpoint(), run.seeds, run.iteration)


def from_checkpoint(saved: Run, fresh: Run) -> Run:
    """Return ``saved``, completed from ``fresh`` with what a checkpoint does not contain."""
    agent = saved.agent.with_schedules(fresh.agent.schedules, saved.iteration)
    return Run(agent, saved.source.from_checkpoint(fresh.source), saved.seeds, saved.iteration)


def with_schedule_length(run: Run, fresh: Agent) -> Run:
    """Return ``run`` with the schedule length of ``fresh``, whose budget may be larger."""
    if not hasattr(fresh.state, "planned"):
        return run
    agent = eqx.tree_at(lambda agent: agent.state.planned, run.agent, fresh.state.planned)
    return Run(agent, run.source, run.seeds, run.iteration)


def is_donated(run: Run) -> bool:
    """Whether interrupted iterations have already donated the run's arrays."""
    leaves = jax.tree.leaves(run)
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def iterate(run: Run) -> tuple[Run, dict[str, Array]]:
    """Make one iteration: collect and learn. Metrics are ``(seed,)``."""
    run, metrics, _ = iterate_with_draws(run)
    return run, metrics


def iterate_with_draws(run: Run) -> tuple[Run, dict[str, Array], Draws]:
    """Make one iteration; also return its metrics, and the draws that it learned from."""
    keys_of = {
        name: random_keys.for_seeds(run.seeds, name, run.iteration) for name in ("draw", "learn")
    }
    agent = run.agent.at_iteration(run.iteration)
    due = partial(Feed.is_due, iteration=run.iteration)
    source, draws = run.source.collect(agent, keys_of["draw"], due)
    if has_rest(source):
        source, learned = _collect_while_learning(source, agent, draws, keys_of, run.iteration)
    else:
        learned = _learn(agent, draws, keys_of, run.iteration)
    agent, heard, metrics = learned
    source = with_stored_rows(source.with_feedback(heard[0]), heard[1])
    return Run(agent, source, run.seeds, run.iteration + 1), metrics, draws


def advance(
    run: Run, iterations: int, sums: dict[str, Any] | None = None
) -> tuple[Run, dict[str, Any]]:
    """Make ``iterations`` iterations and add their metrics to ``sums`` (default: 0), per seed.

    Metrics are added in order, so the sums do not depend on how iterations are split into calls.
    The passed run's arrays are donated to the new run.
    """
    if run.source.traced:
        advanced: tuple[Run, dict[str, Any]] = compiled_advance()(
            run, sums or _zero_metrics(run), np.int32(iterations)
        )
        return advanced
    history = [sums] if sums else []
    for _ in range(iterations):
        run, metrics = iterate(run)
        history.append(metrics)
    if not history:
        return run, {}
    names = history[0]
    return run, {name: sum(np.asarray(metrics[name]) for metrics in history) for name in names}


@jax.jit  # for worlds on the host; it has no effect inside a compiled program
def _learn(
    agent: Agent, draws: Draws, keys: dict[str, Key[Array, "seed"]], iteration: Int[Array, ""]
) -> tuple[Agent, Heard, dict[str, Array]]:
    return agent.learn(draws, keys, iteration)


def _collect_while_learning(
    source: Any, *learning: Any
) -> tuple[Any, tuple[Agent, Heard, dict[str, Array]]]:
    """Collect what the source left, in this thread as always, while another one learns. Where both
    raise, what collecting raised is told."""
    with ThreadPoolExecutor(1, "learn") as pool:
        learned = pool.submit(lambda: jax.block_until_ready(_learn(*learning)))
        source = collect_rest(source)
    return source, learned.result()


@cache
def compiled_advance() -> Any:
    """Return the compiled ``advance`` for traced worlds, shared by all runs of the same shapes."""
    jitted = jax.jit(_advance_traced, donate_argnums=0, compiler_options=run_compiler_options())
    return StoredJit("advance", jitted, lambda run, sums, _: (run, sums))


def _advance_traced(
    run: Run, sums: dict[str, Array], iterations: Int[Array, ""]
) -> tuple[Run, dict[str, Array]]:
    """Make any number of iterations in one program (0 compiles it and changes nothing)."""

    def body(_: Array, carry: tuple[Run, dict[str, Array]]) -> tuple[Run, dict[str, Array]]:
        run, sums = carry
        run, metrics = _iterate_jitted(run)
        return run, jax.tree.map(jnp.add, sums, metrics)

    return jax.lax.fori_loop(0, iterations, body, (run, sums))


_iterate_jitted = jax.jit(iterate)  # traced once, for the metrics' shapes and for the loop's body


def _zero_metrics(run: Run) -> dict[str, Array]:
    """Return the metrics of no iterations: zeros."""
    names = remembered("metrics", run, lambda: _metric_shapes(run))
    return {name: jnp.asarray(np.zeros(shape, kind)) for name, (shape, kind) in names.items()}


def _metric_shapes(run: Run) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the metrics' shapes and types by name; this traces an iteration."""
    shapes = jax.eval_shape(lambda run: _iterate_jitted(run)[1], run)
    return {name: (leaf.shape, leaf.dtype.name) for name, leaf in shapes.items()}
