"""Open a run's dataset (its log): check it, and convert it to the spaces of the run's world."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sterling import algorithms
from sterling.actor import Actor
from sterling.data import Dataset
from sterling.data.episode_returns import episode_probabilities, summarise_log
from sterling.data.formats.env_spaces import NAME_ENVIRONMENT, SpacePair, match_world_spaces
from sterling.data.space_json import (
    action_space_for_agent,
    agent_obs_space,
    column_spaces,
    space_from_json,
    space_to_json,
    to_stored_action,
)
from sterling.envs.actions.action_masks import describe_misfit, has_unsupported_mask
from sterling.envs.compiled import envpool_env
from sterling.envs.registry import find_backend
from sterling.experience.channels_read import channels_read
from sterling.experience.offline.log_columns import check_columns, column_channels
from sterling.needs.algorithm_needs import AnyNeeds
from sterling.problem.channels import Channel
from sterling.system.terminal_messages import print_notice
from sterling.training.config.run_options import LogSettings
from sterling.training.config.settings import Settings
from sterling.types import Action, Log, Mistake, Spec, World


def say_that_log_is_missing(settings: Settings) -> None:
    """Print what an algorithm that is made for datasets learns from in a run without one, unless it
    goes on from another policy."""
    name, offline = settings.algorithm, algorithms.GROUPS["offline"]
    begins = settings.data is None and settings.init is None and settings.guide is None
    if begins and name in algorithms.ALGORITHMS and algorithms.group_of(name) == offline:
        print_notice(
            f"{name} is made for datasets (--data FILE); without one it learns from its own steps "
            f"in {settings.name} alone"
        )


def without_evaluation(book: LogSettings) -> dict[str, Any]:
    """Return the options of a run that only learns from a dataset that names no environment, and
    say that nothing is evaluated."""
    print_notice(
        f"{book.path} names no environment, so the policy is not evaluated; --environment ENV "
        "evaluates it in one, and sterling evaluate RUN --method fqe from the dataset"
    )
    return {"evaluate_episodes": 0}


def make_log_settings(data: str | Path | Dataset | None, **how: Any) -> LogSettings | None:
    """Return a run's settings of its dataset ``data``; ``how`` are fields of :class:`LogSettings`.

    Raise Mistake for a dataset that is in no file, and for invalid shares.
    """
    if data is None:
        if how:
            verb = "need" if len(how) > 1 else "needs"
            raise Mistake(f"{', '.join(how)} {verb} a dataset: add data=FILE")
        return None
    if isinstance(data, Dataset) and data.path is None:
        raise Mistake("training needs a dataset in a file: call data.save(PATH), then data=PATH")
    dataset = data if isinstance(data, Dataset) else Dataset(data)
    made = LogSettings(str(Path(dataset.path or "").resolve()), dataset.hash, **how)
    if not 0.0 <= made.share < 1.0:
        raise Mistake(f"share must be at least 0 and below 1; got {made.share}")
    episode_probabilities(dataset, made.sampling)  # raises for an unknown kind of sampling
    return made


def choose_environment(
    book: LogSettings | None,
    environment: Any,
    given: dict[str, Any] | None,
    episodes: int | float | None,
    steps: int | float = 0,
    *,
    texts: str = "",
) -> tuple[Any, dict[str, Any]]:
    """Return a run's environment and its options. The default is the environment of the dataset,
    with the options with which it was made; options that are ``given`` replace these. A language
    model needs none if it learns from a file of ``texts``.

    Raise Mistake if neither the user nor the dataset names an environment, and ``steps`` are to be
    taken or ``episodes`` to be played (None: as many as usual, none without an environment).
    """
    given = given or {}
    if book is None:
        if not environment and not texts:
            raise Mistake(
                "training needs an environment, or a dataset: data=FILE (for sft, dpo and reward "
                "also texts=FILE)"
            )
        if not environment and episodes:
            raise Mistake(
                f"{texts} is no environment, and evaluation needs one. Name it, or measure the "
                "loss on rows that are held out: --held-out 0.1 (in Python held_out=0.1)."
            )
        return environment or "", given
    facts = read_log(book).facts
    if environment and environment != facts.environment:
        return environment, given
    if not facts.environment and (episodes or steps):
        what = "steps need" if steps else "evaluation needs"
        rest = "leave out --steps" if steps else "set --evaluate-episodes 0"
        raise Mistake(
            f"{book.path} does not say in which environment it was made, and {what} one. Add "
            f"--environment ENV (in Python environment=ENV), or {rest}."
        )
    return facts.environment, {**facts.options, **given}


@functools.lru_cache(maxsize=1)
def read_log(book: LogSettings) -> Dataset:
    """Return the episodes to learn from, as they are in their file.

    Raise Mistake if the file is broken (unless ``book.unchecked``) or has changed.
    """
    dataset = Dataset(book.path)
    if dataset.hash != book.hash:
        raise Mistake(f"{book.path} has changed since this run began. Restore that file.")
    if not book.unchecked:
        from sterling.data import require_valid  # what checks takes time to import

        require_valid(dataset)
    return dataset if book.top == 1.0 else dataset.top(book.top)


# the world last passed to `spec_and_summary`, by log: another log may be opened in between
_WORLD_SPACES: dict[LogSettings, tuple[SpacePair, str]] = {}
_CLIPPED_LOGS: set[LogSettings] = set()  # logs whose rewards are clipped, because the world's are


@functools.lru_cache(maxsize=1)
def read_log_in_world(book: LogSettings) -> Dataset:
    """Return the episodes in the spaces of the world last passed to :func:`spec_and_summary`, with
    rewards clipped if agents get clipped rewards there."""
    log, world = read_log(book), _WORLD_SPACES.get(book)
    log = log if world is None else match_world_spaces(log, *world, checked=not book.unchecked)
    return log.with_rewards(np.sign) if book in _CLIPPED_LOGS else log


def fit_to_world(
    log: Dataset, world: World | SpacesWorld, name: str, checked: bool = True
) -> Dataset:
    """Return a log in the spaces of the world ``name``; off-policy evaluation uses it too. See
    :func:`sterling.data.formats.env_spaces.match_world_spaces`."""
    return match_world_spaces(log, world_spaces(world), name, checked)


def world_spaces(world: Any) -> SpacePair:
    """Return the spaces of a log for this world: observations as agents see them, and actions of
    the innermost environment; a choice that is masked jointly stays one number."""
    inner = world
    while hasattr(inner, "world") and not getattr(inner, "joint", False):
        inner = inner.world
    return world.spec.obs, getattr(inner, "action_space", inner.spec.action)


@functools.lru_cache(maxsize=1)
def _log_summary(book: LogSettings, clipped: bool) -> Log:
    return summarise_log(read_log(book).with_rewards(np.sign) if clipped else read_log(book))


def _clips_rewards(settings: Settings) -> bool:
    """Whether the agents also learn in a world with clipped rewards. The log's rewards are then
    clipped too, in both phases, so that values have one unit."""
    if not (settings.steps and settings.environment):
        return False
    backend, name = find_backend(settings.environment)
    return backend == "envpool" and envpool_env.clips_rewards(name, settings.env_options)


def fill_from_log(settings: Settings) -> Settings:
    """Return the settings with all that creating the agent needs from the log, so that it can be
    created without the log: fields that the algorithm takes from it, such as dt's target return,
    and the log's spaces if there is no environment."""
    if settings.data is None:
        return settings
    filled: dict[str, Any] = {}
    if settle := getattr(algorithms.find(settings.algorithm), "complete_config", None):
        filled["config"] = settle(
            settings.config, _log_summary(settings.data, _clips_rewards(settings))
        )
    if not settings.environment:
        log = read_log(settings.data)
        filled["spaces"] = {
            "obs": space_to_json(log.obs_space),
            "action": space_to_json(log.action_space),
        }
        if log.facts.limit is not None:
            filled["spaces"]["limit"] = log.facts.limit
        if told := column_channels(log):
            filled["spaces"]["channels"] = {name: list(x.parts) for name, x in told.items()}
    return dataclasses.replace(settings, **filled)


class SpacesWorld:
    """Stands for the world if a log names none: it has only the log's ``Settings.spaces``, with its
    columns as channels, and its time limit if the log says it."""

    def __init__(self, spaces: dict[str, Any]):
        self.action_space = space_from_json(spaces["action"])  # the log's own
        obs = agent_obs_space(space_from_json(spaces["obs"]))
        action = action_space_for_agent(self.action_space)
        told = spaces.get("channels", {})
        channels = {name: Channel(tuple(parts)) for name, parts in told.items()}
        self.spec = Spec(obs, action, limit=spaces.get("limit"), channels=channels)

    def to_world(self, action: Action) -> Action:
        """Convert an agent's actions, with any leading axes, to the log's form."""
        leaves, form = jax.tree.flatten(action)
        own = zip(column_spaces("action", self.action_space).values(), leaves, strict=True)
        return jax.tree.unflatten(form, [to_stored_action(space, leaf) for space, leaf in own])


def split_needs(settings: Settings, needs: AnyNeeds) -> tuple[AnyNeeds | None, AnyNeeds]:
    """Split the needs of the online phase into the log's part of every batch (None: no rows), and
    the part of the agents' own experience."""
    if settings.data is None or needs.beside_log:
        return None, needs
    own, rest = needs.divided(settings.data.share)
    if not any(feed.batch for feed in own.feeds):
        return None, needs
    return own, rest


def spec_and_summary(settings: Settings, world: World | None) -> tuple[Spec, Log]:
    """Return the log's Spec and statistics. From now on :func:`read_log_in_world` returns the log
    in the spaces of ``world``.

    Raise Mistake if ``world`` has other spaces, or an action mask does not fit the actions.
    """
    book = settings.data
    assert book is not None
    _WORLD_SPACES.pop(book, None)
    _CLIPPED_LOGS.discard(book)
    if _clips_rewards(settings):
        _CLIPPED_LOGS.add(book)
        needs = algorithms.find(settings.algorithm).needs(settings.config)
        if "episode/return" in needs.keep and not needs.beside_log:
            raise Mistake(
                "keep names 'episode/return', but the log's rewards are clipped as the world's. "
                "Leave it out, or give --env reward_clip=false."
            )
    if world is not None:
        _WORLD_SPACES[book] = world_spaces(world), settings.name
    read_log_in_world.cache_clear()
    log = read_log_in_world(book)
    if has_unsupported_mask(log.spec):
        raise Mistake(f"{book.path}: {describe_misfit(log.spec)}.")
    if world is not None:
        for name in ("obs", "action"):
            own, its = getattr(log.spec, name), getattr(world.spec, name)
            if not are_spaces_alike(own, its):
                word = {"obs": "observations", "action": "actions"}[name]
                raise Mistake(
                    f"the dataset has {word} {own} and {settings.name} has {its}. "
                    f"{NAME_ENVIRONMENT}, if it is another one."
                )
    declared = ("unseen", "limit", "alternating", "agents", "channels", "level_space")
    known: Any = {name: getattr(world.spec, name) for name in declared if world is not None}
    known = known or {"channels": column_channels(log)}
    return dataclasses.replace(log.spec, **known), _log_summary(book, book in _CLIPPED_LOGS)


def check_tells_channels(settings: Settings, agent: Actor, spec: Spec) -> None:
    """Raise Mistake if the log lacks what the agents act by of what their world reports."""
    if settings.data is not None and spec.channels:
        read = channels_read(agent, spec, len(settings.seeds))
        check_columns(read_log(settings.data), read, f"{settings.title} acts by")


def are_spaces_alike(own: Any, its: Any) -> bool:
    """Whether two spaces have the same kind and shape; bounds of observations may differ."""
    if type(own) is not type(its):
        return False
    if hasattr(own, "spaces"):
        keyed = isinstance(own.spaces, dict)
        pairs = (
            [(own.spaces.get(key), space) for key, space in its.spaces.items()]
            if keyed
            else list(zip(own.spaces, its.spaces, strict=False))
        )
        return len(own.spaces) == len(its.spaces) and all(are_spaces_alike(*pair) for pair in pairs)
    if hasattr(own, "n"):
        return bool((own.n == its.n) if own.shape == () else own.shape == its.shape)
    return own.shape == its.shape and own.dtype.kind == its.dtype.kind
