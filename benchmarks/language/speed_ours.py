"""Sterling's side of the speed benchmark: see speed.py, which starts it."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from speed_serve import Case, serve

from sterling import random_keys
from sterling.language import load
from sterling.language.models.generation import Answers, Prompts, generate
from sterling.language.models.parallel_generation import generate_in_parallel
from sterling.language.models.token_sampling import Sampling
from sterling.training.agent import Agent
from sterling.training.assembly import build_run
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import LanguageSettings
from sterling.training.loop import Run, advance

WARM = 4  # iterations before the first that counts: questions of every length have been met


def sampling(folder: str, *, rows: int, room: int, new: int, slots: int) -> Case:
    """Answers of exactly ``new`` tokens."""
    model, _tokenizer = load(folder)
    model = jax.tree.map(jnp.asarray, model)
    prompts = _prompts(model.vocabulary, rows, room, limit=new, slots=slots, stops=())

    def write(some: Prompts) -> Answers:
        return generate(model, some, jax.random.key(0))

    def once() -> dict[str, Any]:
        found = generate_in_parallel(write, prompts)
        assert (found.length == new).all()
        return {"tokens": rows * new}

    return once


def skewed(
    folder: str, *, rows: int, room: int, limit: int, slots: int, stops: int, refill: bool
) -> Case:
    """Answers that end by chance; with ``refill`` in one call, else in batches of ``slots``."""
    model, _tokenizer = load(folder)
    model = jax.tree.map(jnp.asarray, model)
    each = rows if refill else slots
    enders = tuple(range(model.vocabulary - stops, model.vocabulary))
    prompts = _prompts(model.vocabulary, each, room, limit=limit, slots=slots, stops=enders)

    def once() -> dict[str, Any]:
        found: list[Answers] = [
            jax.block_until_ready(generate(model, prompts, jax.random.key(number)))
            for number in range(rows // each)
        ]
        lengths = np.concatenate([np.asarray(answers.length) for answers in found])
        return {
            "tokens": int(lengths.sum()),
            "mean": float(lengths.mean()),
            "longest": int(lengths.max()),
        }

    return once


def grpo(folder: str, environment: str, levels: str, **fields: Any) -> Case:
    """One iteration of the training loop: ask, answer, judge, learn."""
    speech = LanguageSettings(
        model=folder, levels=levels, slots=fields["prompts"] * fields["group"]
    )
    settings = resolve_settings(
        "grpo", environment, updates=1_000_000, seeds=[0], speech=speech, fields=fields
    )
    run = build_run.build_first_phase(settings)
    for _ in range(WARM):
        run, _metrics = advance(run, 1)

    def once() -> dict[str, Any]:
        nonlocal run
        run = Run(run.agent, run.source.reset_statistics(), run.seeds, run.iteration)
        begin = time.perf_counter()
        run, _metrics = advance(run, 1)
        jax.block_until_ready(run.agent.state)
        seconds = time.perf_counter() - begin
        tally = run.source.tally
        return {"seconds": seconds, "mean": float((tally.lengths / tally.episodes)[0])} | _parts(
            run
        )

    return once


class _Heard:
    """An agent whose answers are waited for; some are written at the same time."""

    def __init__(self, agent: Agent):
        self.agent = agent
        self._spans: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        """From the first word to the last, of scenes of one turn."""
        return max(end for _, end in self._spans) - min(begin for begin, _ in self._spans)

    def act(self, obs: Any, keys: Key[Array, "seed"], explore: bool) -> tuple[Any, Any]:
        """See Agent.act."""
        begin = time.perf_counter()
        found = jax.block_until_ready(self.agent.act(obs, keys, explore))
        self._spans.append((begin, time.perf_counter()))
        return found


def _parts(run: Run) -> dict[str, float]:
    """Seconds of an iteration's sampling, and of all that is done on the host beside it; the
    rest is learning. Nothing of it is kept."""
    heard, begin = _Heard(run.agent), time.perf_counter()
    _source, draws = run.source.collect(
        heard, random_keys.for_seeds(run.seeds, "draw", run.iteration)
    )
    jax.block_until_ready(draws)
    return {"sampling": heard.seconds, "hearing": time.perf_counter() - begin - heard.seconds}


def matrix(size: int, chunk: int, dtype: str) -> Case:
    """Matrix products, each fed with the one before."""
    first, second = jax.random.split(jax.random.key(0))
    weight = jnp.linalg.qr(jax.random.normal(first, (size, size)))[0].astype(dtype)  # stays finite
    x = jax.random.normal(second, (size, size), dtype)
    multiply = jax.jit(lambda x: jax.lax.fori_loop(0, chunk, lambda _, x: x @ weight, x))

    def once() -> dict[str, Any]:
        jax.block_until_ready(multiply(x))
        return {"flops": chunk * 2 * size**3}

    return once


def memory(mebibytes: int) -> Case:
    """An array read once: what a step that reads all weights takes at least."""
    x = jnp.ones((mebibytes << 20) // 4)
    total = jax.jit(jnp.sum)

    def once() -> dict[str, Any]:
        total(x).block_until_ready()
        return {"bytes": mebibytes << 20}

    return once


def _prompts(
    vocabulary: int, rows: int, room: int, *, limit: int, slots: int, stops: tuple[int, ...]
) -> Prompts:
    ids = jax.random.randint(jax.random.key(1), (rows, room), 3, vocabulary, jnp.int32)
    lengths = jnp.full(rows, room, jnp.int32)
    total = jnp.asarray(rows, jnp.int32)
    number = jnp.arange(rows, dtype=jnp.int32)
    return Prompts(
        ids, lengths, total, number, Sampling.for_rows(rows), limit, min(slots, rows), stops
    )


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import sterling

    return {"sterling": sterling.__version__} | {
        name: version(name) for name in ("jax", "jaxlib", "equinox", "numpy")
    }


if __name__ == "__main__":
    kinds = {f.__name__: f for f in (sampling, skewed, grpo, matrix, memory)}
    serve(kinds, _versions())
