"""Estimate a run's memory before anything is built, and refuse runs that cannot fit.

If an allocation fails, XLA ends the process with a C++ stack trace, and the operating system may
kill it without a message. So a run's memory is estimated from its settings and from the shapes of
its agents. The estimates are lower bounds: a run that they refuse cannot fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from sterling import algorithms
from sterling.experience.store_memory_check import free_bytes
from sterling.needs.feed import EPISODES, GENERATED, REPLAY, STEPS, Feed
from sterling.nets.mlp import hidden_sizes
from sterling.training.config.run_options import LanguageSettings
from sterling.training.config.settings import Settings
from sterling.types import Mistake

NUMBER_BYTES = 4  # bytes
ROW_BYTES = (
    5 * NUMBER_BYTES
)  # at least, per step: observation, reward, discount, next observation, action
WORLD_BYTES = 8 * NUMBER_BYTES  # at least, per environment: its state, its random key, its episode


class MemoryNeed(NamedTuple):
    """The minimum bytes of a part of a run, and the settings whose product determines them."""

    part: str
    size: int
    made_by: dict[str, int]


def check_memory(settings: Settings) -> None:
    """Raise :class:`Mistake` if a part of the run cannot fit into free memory."""
    _check_each(_memory_needs(settings))


def check_network_memory(settings: Settings) -> None:
    """Raise :class:`Mistake` if the hidden layers alone cannot fit; JAX may fail to compute the
    shapes of such agents."""
    _check_each(_network_needs(settings, len(settings.seeds)))


def check_evaluation_memory(settings: Settings, episodes: int) -> None:
    """Raise :class:`Mistake` if evaluating ``episodes`` episodes per seed cannot fit."""
    _check_each([_evaluation_need(settings, episodes, "episodes")])


def _check_each(needs: Iterable[MemoryNeed]) -> None:
    for need in needs:
        numbers = {name: value for name, value in need.made_by.items() if value > 1}
        largest = max(numbers, key=lambda name: numbers[name], default="seeds")
        said = " x ".join(f"{name}={value:_}" for name, value in numbers.items())
        _check_fits(need.size, f"{need.part} ({said})", f"Use a smaller {largest}")


def check_agent_memory(settings: Settings, made: PyTree) -> None:
    """Raise :class:`Mistake` if the agents, given as shapes, cannot fit into free memory."""
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(made)]
    names = ("width", "depth", "layers", "members")
    known = {name: getattr(settings.config, name, None) for name in names}
    known["lora"] = settings.speech.lora if settings.speech else None
    said = " ".join(f"{name}={_sizes_text(value)}" for name, value in known.items() if value)
    what = f"the agents of {len(settings.seeds)} seeds ({said or settings.title})"
    _check_fits(sum(sizes), what, "Use smaller networks or fewer seeds")


def _sizes_text(value: Any) -> str:
    """Return a number, or a list of layer sizes, as the command line has it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value:_}"


def _check_fits(size: int, what: str, remedy: str) -> None:
    free = free_bytes()
    if free is not None and size > free:
        raise Mistake(
            f"{what} cannot fit: at least {size / 1e9:.3g} GB are needed and {free / 1e9:.3g} GB "
            f"of memory are free. {remedy}."
        )


def _memory_needs(settings: Settings) -> Iterator[MemoryNeed]:
    """Yield the memory needs that follow from the settings alone."""
    config, seeds = settings.config, len(settings.seeds)
    envs = {"envs": settings.envs, "seeds": seeds}
    yield MemoryNeed("environments", _product(envs) * WORLD_BYTES, envs)
    yield _evaluation_need(settings, settings.evaluate_episodes, "evaluate_episodes")
    needs = algorithms.find(settings.algorithm).needs(config)
    # whether every env has its own networks
    per_env = needs.has_feed(EPISODES) or needs.adapt or needs.members
    yield from _network_needs(settings, seeds * (settings.envs if per_env else 1))
    batch = {**_batch_numbers(needs, settings), "seeds": seeds}
    yield MemoryNeed("one iteration's experience", _product(batch) * ROW_BYTES, batch)
    if settings.speech is not None:
        yield from _language_needs(settings, needs)


def _evaluation_need(settings: Settings, count: int, name: str) -> MemoryNeed:
    """Return the need of an evaluation: the return and length of each episode. Its worlds do not
    count, because a few worlds may play all episodes in rounds."""
    numbers = {name: count, "seeds": len(settings.seeds)}
    return MemoryNeed("episodes of evaluation", _product(numbers) * 2 * NUMBER_BYTES, numbers)


def _network_needs(settings: Settings, seeds: int) -> Iterator[MemoryNeed]:
    """Yield the needs of the hidden layers, and of their activations for one batch of one seed."""
    config = settings.config
    given = getattr(config, "width", 0)
    kind = "depth" if hasattr(config, "depth") else "layers"
    sizes = hidden_sizes(given, int(getattr(config, kind, 1)))
    layers, width = len(sizes), max(sizes, default=0)
    inner = max(sum(a * b for a, b in pairwise(sizes)), width)  # weights
    yield MemoryNeed("the networks", inner * NUMBER_BYTES * seeds, {"width": width, kind: layers})
    rows = "minibatch" if getattr(config, "minibatch", None) else "batch"
    batch = {rows: int(getattr(config, rows, 1)), "width": width}
    yield MemoryNeed(
        "the activations of one update", _product(batch) * NUMBER_BYTES * max(layers, 1), batch
    )


def _batch_numbers(needs: Any, settings: Settings) -> dict[str, int]:
    """Return the settings whose product is the rows of one iteration and one seed."""
    if needs.has_feed(GENERATED):
        return {"prompts": needs.prompts, "group": needs.group, "limit": needs.limit}
    if needs.has_feed(EPISODES) and not any(STEPS in feed.add for feed in needs.feeds):
        return {"envs": settings.envs}  # a row is an episode
    rollout = {"length": needs.collect, "envs": settings.envs}
    feeds = [_feed_numbers(feed) for feed in needs.feeds if not feed.whole]
    return max(feeds, key=_product) if feeds else rollout


def _feed_numbers(feed: Feed) -> dict[str, int]:
    """Return the settings whose product is the rows of a feed's updates."""
    numbers = {"batch": feed.batch, "learn": feed.updates}
    if feed.length:
        return {**numbers, "length": feed.length}
    return {**numbers, "n_step": feed.n_step} if feed.of == REPLAY else numbers


def _language_needs(settings: Settings, needs: Any) -> Iterator[MemoryNeed]:
    """Yield the needs of a language run: its texts, the sampler's cache, and the examples."""
    speech = settings.speech
    if speech is None:
        return
    yield from _weights_need(settings, speech)
    context = max(speech.context, settings.context, getattr(needs, "limit", 1))
    slots = {"slots": speech.slots, "context": context}
    if needs.has_feed(GENERATED):
        yield MemoryNeed("answers that are generated at a time", _product(slots) * ROW_BYTES, slots)
        return
    lines = {"batch": needs.batch, "context": context}
    yield MemoryNeed("a batch of lines", _product(lines) * ROW_BYTES, lines)
    yield MemoryNeed("examples", speech.examples * ROW_BYTES, {"examples": speech.examples})


def _weights_need(settings: Settings, speech: LanguageSettings) -> Iterator[MemoryNeed]:
    """Yield the need of a Hugging Face model's weights, of which every seed has a copy. Without
    adapters they are trained in float32, with two moments each."""
    path = Path(speech.model) / "config.json"
    if not path.is_file():
        return
    from sterling.language.models import model_families
    from sterling.language.tokenizer import read_json

    config = read_json(path)
    if not config or "algorithm" in config:  # a run folder: check_agent_memory counts its agents
        return
    weights = model_families.plan_from_config(config, str(path)).weights
    numbers = {"weights": weights, "seeds": len(settings.seeds)}
    each = 2 if speech.lora else 3 * NUMBER_BYTES  # bytes; stored weights have at least two
    yield MemoryNeed(f"the model in {speech.model}", _product(numbers) * each, numbers)


def _product(numbers: dict[str, int]) -> int:
    """Return the product as a Python int, which cannot overflow."""
    made = 1
    for number in numbers.values():
        made *= int(number)
    return made
