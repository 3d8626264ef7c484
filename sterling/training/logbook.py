"""The log of a run: opened once, checked, and fit for the run's world."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sterling import algorithms
from sterling.data import Dataset, sound
from sterling.data.formats.fitted import Spaces, of_world
from sterling.data.returns import shares, summary
from sterling.data.spaces import as_stored_acts, from_json, obs_of_agent, of_agent, parts, to_json
from sterling.envs import envpool
from sterling.envs.registry import find
from sterling.training.choices import Logbook
from sterling.training.settings import Settings
from sterling.types import Action, Log, Mistake, Spec, World


def begun(data: str | Path | Dataset | None, **how: Any) -> Logbook | None:
    """What a run is to remember of ``data``; ``how`` are fields of :class:`Logbook`.

    Raises Mistake for a dataset that lies in no file, and for shares that cannot be.
    """
    if data is None:
        if how:
            verb = "speak" if len(how) > 1 else "speaks"
            raise Mistake(f"{', '.join(how)} {verb} of a log: give data=FILE")
        return None
    if isinstance(data, Dataset) and data.path is None:
        raise Mistake("a run remembers its log by its file: data.save(PATH) first, then data=PATH")
    dataset = data if isinstance(data, Dataset) else Dataset(data)
    made = Logbook(str(Path(dataset.path or "").resolve()), dataset.hash, **how)
    if not 0.0 <= made.share < 1.0:
        raise Mistake(f"the log's share of a batch lies in [0, 1); got {made.share}")
    shares(dataset, made.sampling)  # raises for a word that it does not know
    return made


def place(
    book: Logbook | None, environment: Any, given: dict[str, Any] | None, episodes: int | float
) -> tuple[Any, dict[str, Any]]:
    """The world of a run, by default the log's own, and what it is given: in the log's own world
    on top of what that was given when the log was made.

    Mistake where none is named, the log names none, and ``episodes`` are to be played.
    """
    given = given or {}
    if book is None:
        if not environment:
            raise Mistake("training needs an environment, or a log: data=FILE")
        return environment, given
    facts = filed(book).facts
    if environment and environment != facts.environment:
        return environment, given
    if not facts.environment and episodes:
        raise Mistake(
            f"{book.path} does not say which environment it was made in; name it, or ask for "
            "evaluate_episodes=0"
        )
    return facts.environment, {**facts.options, **given}


@functools.lru_cache(maxsize=1)
def filed(book: Logbook) -> Dataset:
    """The episodes to learn from, as their file has them.

    Raises Mistake where the file is broken (unless ``book.unchecked``) or no longer the same.
    """
    dataset = Dataset(book.path)
    if dataset.hash != book.hash:
        raise Mistake(f"{book.path} is not the log that this run began with; restore that file")
    if not book.unchecked:
        sound(dataset)
    return dataset if book.top == 1.0 else dataset.top(book.top)


# Of every log the world that `spec` was last told: another log may be opened in between.
_WORLDS: dict[Logbook, tuple[Spaces, str]] = {}
_CLIPPED: set[Logbook] = set()  # those that `spec` was last told to mix with clipped rewards


@functools.lru_cache(maxsize=1)
def opened(book: Logbook) -> Dataset:
    """The same in the spaces of the run's world, once :func:`spec` was told that, and with rewards
    as agents are told them there."""
    log, world = filed(book), _WORLDS.get(book)
    log = log if world is None else of_world(log, *world, checked=not book.unchecked)
    return log.rewarded(np.sign) if book in _CLIPPED else log


def in_world(log: Dataset, world: World | Unlived, name: str, checked: bool = True) -> Dataset:
    """A log in the spaces of the world ``name``, as :func:`sterling.data.formats.fitted.of_world`
    has it; who judges an agent by a log asks for that too."""
    return of_world(log, _spaces(world), name, checked)


def _spaces(world: Any) -> Spaces:
    """Observations as an agent has them, which logs have too, and actions as the environment inside
    all wrappers takes them; choices that are only allowed together stay one number."""
    inner = world
    while hasattr(inner, "world") and not getattr(inner, "joint", False):
        inner = inner.world
    return world.spec.obs, getattr(inner, "action_space", inner.spec.action)


@functools.lru_cache(maxsize=1)
def _summary(book: Logbook, clipped: bool) -> Log:
    return summary(filed(book).rewarded(np.sign) if clipped else filed(book))


def _clips(settings: Settings) -> bool:
    """Whether the agents also learn in a world that tells them the sign of rewards only; those of
    the log are then clipped likewise, in both phases: values have one unit."""
    if not (settings.steps and settings.environment):
        return False
    backend, name = find(settings.environment)
    return backend == "envpool" and envpool.is_clipped(name, settings.env_options)


def settled(settings: Settings) -> Settings:
    """The settings with all that an agent is made of, so that it can be made again without its
    log: the fields that the algorithm leaves to the log, as dt does the return to ask for, and the
    log's spaces where no environment is named."""
    if settings.data is None:
        return settings
    filled: dict[str, Any] = {}
    if settle := getattr(algorithms.find(settings.algorithm), "settled", None):
        filled["config"] = settle(settings.config, _summary(settings.data, _clips(settings)))
    if not settings.environment:
        log = filed(settings.data)
        filled["spaces"] = {"obs": to_json(log.obs_space), "action": to_json(log.action_space)}
    return dataclasses.replace(settings, **filled)


class Unlived:
    """In place of a world where a log names none: the log's spaces, by ``Settings.spaces``."""

    def __init__(self, spaces: dict[str, Any]):
        self.action_space = from_json(spaces["action"])  # the log's own
        obs = obs_of_agent(from_json(spaces["obs"]))
        self.spec = Spec(obs=obs, action=of_agent(self.action_space))

    def to_world(self, action: Action) -> Action:
        """An agent's action, with any leading axes, as the log has them."""
        leaves, form = jax.tree.flatten(action)
        own = zip(parts("action", self.action_space).values(), leaves, strict=True)
        return jax.tree.unflatten(form, [as_stored_acts(space, leaf) for space, leaf in own])


def divided(settings: Settings, needs: AnyNeeds) -> tuple[AnyNeeds | None, AnyNeeds]:
    """What of every batch comes from the log once the agents act themselves (None: nothing), and
    what from what they live through."""
    if settings.data is None:
        return None, needs
    own, rest = needs.divided(settings.data.share)
    if not any(feed.batch for feed in own.feeds):
        return None, needs
    return own, rest


def spec(settings: Settings, world: World | None) -> tuple[Spec, Log]:
    """The problem as the log has it, and what the log holds; from now on it is :func:`opened` in
    the spaces of ``world``.

    Raises Mistake where ``world`` is another problem.
    """
    book = settings.data
    assert book is not None
    _WORLDS.pop(book, None)
    _CLIPPED.discard(book)
    if _clips(settings):
        _CLIPPED.add(book)
    if world is not None:
        _WORLDS[book] = _spaces(world), settings.name
    opened.cache_clear()
    log = opened(book)
    if world is not None:
        for name in ("obs", "action"):
            own, its = getattr(log.spec, name), getattr(world.spec, name)
            if not alike(own, its):
                word = {"obs": "observations", "action": "actions"}[name]
                raise Mistake(
                    f"the log has {word} {own} and {settings.name} has {its}; "
                    "name the environment that it was made in"
                )
    return log.spec, _summary(book, book in _CLIPPED)


def alike(own: Any, its: Any) -> bool:
    """Whether two spaces hold the same kind of values; bounds of observations may differ."""
    if type(own) is not type(its):
        return False
    if hasattr(own, "spaces"):
        keyed = isinstance(own.spaces, dict)
        pairs = (
            [(own.spaces.get(key), space) for key, space in its.spaces.items()]
            if keyed
            else list(zip(own.spaces, its.spaces, strict=False))
        )
        return len(own.spaces) == len(its.spaces) and all(alike(*pair) for pair in pairs)
    if hasattr(own, "n"):
        return bool((own.n == its.n) if own.shape == () else own.shape == its.shape)
    return own.shape == its.shape and own.dtype.kind == its.dtype.kind
