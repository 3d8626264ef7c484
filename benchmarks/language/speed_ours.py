"""Sterling's side of the speed benchmark: see speed.py, which starts it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from speed_serve import Case, serve

from sterling import random_keys
from sterling.language import load
from sterling.language.engine import slots as engine_slots
from sterling.language.engine.agent_samplers import seed_samplers
from sterling.language.engine.ask import Ask, Said, chance_of
from sterling.language.engine.local_sampler import LocalSampler, worker_slots
from sterling.language.engine.slots import SlotShapes
from sterling.training.agent import Agent
from sterling.training.assembly import build_run
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import LanguageSettings
from sterling.training.loop import Run, advance

WARM = 4  # iterations before the first that counts: questions of every length have been met


def sampling(folder: str, *, rows: int, room: int, new: int, slots: int) -> Case:
    """Answers of exactly ``new`` tokens."""
    answer = _asker(folder, rows, room, SlotShapes(worker_slots(slots), room + new, new, ()))

    def once() -> dict[str, Any]:
        assert all(len(said.ids) == new for said in answer(0, rows))
        return {"tokens": rows * new}

    return once


def skewed(
    folder: str, *, rows: int, room: int, limit: int, slots: int, stops: int, refill: bool
) -> Case:
    """Answers that end by chance; with ``refill`` asked at once, else in batches of ``slots``."""
    vocabulary, each = load(folder)[0].vocabulary, rows if refill else slots
    enders = tuple(range(vocabulary - stops, vocabulary))
    shapes = SlotShapes(worker_slots(slots), room + limit, limit, enders)
    answer = _asker(folder, rows, room, shapes)

    def once() -> dict[str, Any]:
        said = [one for first in range(0, rows, each) for one in answer(first, each)]
        lengths = np.array([len(one.ids) for one in said])
        return {
            "tokens": int(lengths.sum()),
            "mean": float(lengths.mean()),
            "longest": int(lengths.max()),
        }

    return once


def _asker(
    folder: str, rows: int, room: int, shapes: SlotShapes
) -> Callable[[int, int], list[Said]]:
    """Return a function that has some of ``rows`` prompts answered."""
    model = jax.tree.map(jnp.asarray, load(folder)[0])
    ready = engine_slots.for_decoding(jax.tree.map(lambda x: x[None], model), 0)
    ids = np.random.default_rng(1).integers(3, model.vocabulary, (rows, room)).tolist()
    asks = [
        Ask(tuple(each), chance_of((0, 0), (row,), each), shapes.limit)
        for row, each in enumerate(ids)
    ]

    def answer(first: int, count: int) -> list[Said]:
        futures = LocalSampler(ready, shapes).ask(asks[first : first + count])
        return [future.result() for future in futures]

    return answer


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
    """An agent whose asks are timed."""

    def __init__(self, agent: Agent):
        self.agent = agent
        self._spans: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        """From the first ask to the last answer, of scenes of one turn."""
        return max(end for _, end in self._spans) - min(begin for begin, _ in self._spans)

    def samplers(self, shapes: SlotShapes) -> list[_Heard]:
        """Return samplers that note when they are asked, and when they have answered."""
        begin = time.perf_counter()
        (inner,) = seed_samplers(self.agent, shapes)
        self._inner, self._begin = inner, begin
        return [self]

    def ask(self, asks: Sequence[Ask]) -> list[Future[Said]]:
        """Answer, and note the time."""
        futures = self._inner.ask(asks)
        for each in futures:
            each.result()
        self._spans.append((self._begin, time.perf_counter()))
        self._begin = time.perf_counter()
        return futures

    def close(self) -> None:
        """Close the sampler."""
        self._inner.close()


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


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import sterling

    return {"sterling": sterling.__version__} | {
        name: version(name) for name in ("jax", "jaxlib", "equinox", "numpy")
    }


if __name__ == "__main__":
    kinds = {f.__name__: f for f in (sampling, skewed, grpo, matrix, memory)}
    serve(kinds, _versions())
