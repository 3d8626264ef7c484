"""Whether a run fits into the memory of this machine, computed before anything is made.

XLA ends the process with a stack of C++ where it does not get what it asks for, and the operating
system may kill it without a word. What a run needs is therefore estimated from its numbers and from
the shapes of its agents. Estimates from numbers are lower bounds: what they refuse cannot fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from sterling import algorithms
from sterling.experience.room import left
from sterling.needs import EPISODES, REPLAY, SAID, Feed
from sterling.training.choices import Speech
from sterling.training.settings import Settings
from sterling.types import Mistake

NUMBER = 4  # bytes
ROW = 5 * NUMBER  # of a step: observation, reward, discount, next observation, action; at least
WORLD = 8 * NUMBER  # of an environment: its state, its random key, its episode; at least


class Need(NamedTuple):
    """Bytes that a part of a run takes at least, and the settings that make it large."""

    part: str
    size: int
    made_by: dict[str, int]


def check_size(settings: Settings) -> None:
    """Raise :class:`Mistake` where a part of the run cannot fit into the memory that is free."""
    _check_each(_needs(settings))


def check_networks(settings: Settings) -> None:
    """Raise :class:`Mistake` where the hidden layers alone cannot fit; shapes as large as that
    need not be computable."""
    _check_each(_networks(settings, len(settings.seeds)))


def check_episodes(settings: Settings, episodes: int) -> None:
    """Raise :class:`Mistake` where an evaluation of so many episodes for each seed cannot fit."""
    _check_each([_episodes(settings, episodes, "episodes")])


def _check_each(needs: Iterable[Need]) -> None:
    for need in needs:
        numbers = {name: value for name, value in need.made_by.items() if value > 1}
        largest = max(numbers, key=lambda name: numbers[name], default="seeds")
        said = " x ".join(f"{name}={value:_}" for name, value in numbers.items())
        _check(need.size, f"{need.part} ({said})", f"use a smaller {largest}")


def check_shapes(settings: Settings, made: PyTree) -> None:
    """Raise :class:`Mistake` where the agents, given as shapes, cannot fit into the memory that
    is free."""
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(made)]
    names = ("width", "depth", "layers", "members")
    known = {name: getattr(settings.config, name, None) for name in names}
    known["lora"] = settings.speech.lora if settings.speech else None
    said = " ".join(f"{name}={value:_}" for name, value in known.items() if value)
    what = f"the agents of {len(settings.seeds)} seeds ({said or settings.title})"
    _check(sum(sizes), what, "use smaller networks or fewer seeds")


def _check(size: int, what: str, remedy: str) -> None:
    free = left()
    if free is not None and size > free:
        raise Mistake(
            f"{what} cannot fit: at least {size / 1e9:.3g} GB are needed and {free / 1e9:.3g} GB "
            f"of memory are free; {remedy}"
        )


def _needs(settings: Settings) -> Iterator[Need]:
    """Every part of the run that its numbers alone can make too large."""
    config, seeds = settings.config, len(settings.seeds)
    envs = {"envs": settings.envs, "seeds": seeds}
    yield Need("environments", _product(envs) * WORLD, envs)
    yield _episodes(settings, settings.evaluate_episodes, "evaluate_episodes")
    needs = algorithms.find(settings.algorithm).needs(config)
    yield from _networks(settings, seeds * (settings.envs if needs.of(EPISODES) else 1))
    batch = {**_batch(needs, settings), "seeds": seeds}
    yield Need("one iteration's experience", _product(batch) * ROW, batch)
    if settings.speech is not None:
        yield from _language(settings, needs)


def _episodes(settings: Settings, count: int, name: str) -> Need:
    """What an evaluation keeps of its episodes, of each its return and its length; their worlds may
    be few that are played in rounds."""
    numbers = {name: count, "seeds": len(settings.seeds)}
    return Need("episodes of evaluation", _product(numbers) * 2 * NUMBER, numbers)


def _networks(settings: Settings, seeds: int) -> Iterator[Need]:
    """Hidden layers, and what they compute of one batch of one seed."""
    config = settings.config
    width = int(getattr(config, "width", 0))
    kind = "depth" if hasattr(config, "depth") else "layers"
    layers = int(getattr(config, kind, 1))
    inner = max(width * width * (layers - 1), width)  # weights
    yield Need("the networks", inner * NUMBER * seeds, {"width": width, kind: layers})
    rows = "minibatch" if getattr(config, "minibatch", None) else "batch"
    batch = {rows: int(getattr(config, rows, 1)), "width": width}
    yield Need("the activations of one update", _product(batch) * NUMBER * max(layers, 1), batch)


def _batch(needs: Any, settings: Settings) -> dict[str, int]:
    """The numbers whose product is one iteration's rows for a seed."""
    if needs.of(SAID):
        return {"prompts": needs.prompts, "group": needs.group, "limit": needs.limit}
    if needs.of(EPISODES):  # a row is an episode
        return {"envs": settings.envs}
    lived = {"length": needs.collect, "envs": settings.envs}
    drawn = [_drawn(feed) for feed in needs.feeds if not feed.whole]
    return max(drawn, key=_product) if drawn else lived


def _drawn(feed: Feed) -> dict[str, int]:
    """The numbers whose product is the rows of a feed's updates."""
    numbers = {"batch": feed.batch, "learn": feed.updates}
    if feed.length:
        return {**numbers, "length": feed.length}
    return {**numbers, "n_step": feed.n_step} if feed.of == REPLAY else numbers


def _language(settings: Settings, needs: Any) -> Iterator[Need]:
    """Lines, the sampler's memory of them, and the examples."""
    speech = settings.speech
    if speech is None:
        return
    yield from _folder(settings, speech)
    context = max(speech.context, settings.context, getattr(needs, "limit", 1))
    slots = {"slots": speech.slots, "context": context}
    if needs.of(SAID):
        yield Need("answers that are written at a time", _product(slots) * ROW, slots)
        return
    lines = {"batch": needs.batch, "context": context}
    yield Need("a batch of lines", _product(lines) * ROW, lines)
    yield Need("examples", speech.examples * ROW, {"examples": speech.examples})


def _folder(settings: Settings, speech: Speech) -> Iterator[Need]:
    """The weights of a Hugging Face folder, which every seed has for itself. Without adapters each
    is learned in float32 with two moments beside it."""
    path = Path(speech.model) / "config.json"
    if not path.is_file():
        return
    from sterling.language import families
    from sterling.language.tokenizer import read_json

    config = read_json(path)
    if not config or "algorithm" in config:  # a run: its agents are counted when they are made
        return
    weights = families.plan(config, str(path)).weights
    numbers = {"weights": weights, "seeds": len(settings.seeds)}
    each = 2 if speech.lora else 3 * NUMBER  # bytes; what is stored has two at least
    yield Need(f"the model in {speech.model}", _product(numbers) * each, numbers)


def _product(numbers: dict[str, int]) -> int:
    """The product as Python's own whole number, which cannot overflow."""
    made = 1
    for number in numbers.values():
        made *= int(number)
    return made
