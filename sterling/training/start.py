"""From settings to a run: the world, the agent and the sources, built for every seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium.spaces import Box
from jaxtyping import Array, Int, Key

from sterling import algorithms, envs, keys
from sterling.envs.board import WIDEST, is_bounded
from sterling.envs.options import check_free
from sterling.equations.augmentation import named, suits
from sterling.experience.augment import Augment
from sterling.experience.draws import Source
from sterling.experience.dream import Dream, awake
from sterling.experience.logged import Logged
from sterling.experience.mix import Mix
from sterling.experience.population import Population
from sterling.experience.preferences import Preferences, unlabelled
from sterling.experience.replay import Replay
from sterling.experience.rollout import Rollout
from sterling.needs import DREAM, EPISODES, LABELS
from sterling.training import hindsight, logbook, sources
from sterling.training.agent import Agent, create_agent
from sterling.training.footprint import check_size
from sterling.training.guide import guided
from sterling.training.loop import Run
from sterling.training.phases import acts, iterations, parts
from sterling.training.programs import once
from sterling.training.settings import Settings
from sterling.types import AnyNeeds, Mistake, Spec, World


def build(settings: Settings, *, warm: bool = True, at: int = 0) -> Run:
    """A run at iteration 0; without ``warm`` the replay stays empty (to be filled on resuming).

    ``at`` is the iteration to go on from: a world that cannot be saved then begins other episodes
    than it did at first, or who is stopped often would see only the first ones.
    """
    check_size(settings)
    world = make_world(settings, training_purpose(at)) if acts(settings) else None
    return beginning(settings, world)(jnp.asarray(settings.seeds, jnp.int32), None, warm)


def beginning(settings: Settings, world: World | None) -> Callable[..., Run]:
    """``begin(seeds, own, warm)``: runs at iteration 0, made ready and compiled only once; in one
    ``world``, where agents act (see :func:`acts`).

    ``own`` gives each member of the seed axis its own numbers (see ``Agent.create``), or is None;
    ``seeds`` may then hold one seed several times: members of one seed meet the same randomness.
    """
    if world is not None:
        return _lived(settings, world)
    if settings.speech is None:
        return _logged(settings)
    from sterling.training import speech  # tokenizers and text worlds take time to import

    return speech.beginning(settings)


def _logged(settings: Settings) -> Callable[..., Run]:
    """Of runs that learn from their log."""
    spec, source_of = of_log(settings)

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        agent = create_agent(settings, spec, seeds, own)
        return Run(agent, source_of(), seeds, jnp.zeros((), jnp.int32))

    return begin


def of_log(settings: Settings) -> tuple[Spec, Callable[[], Source]]:
    """The problem as the settings' log has it, and what makes the source of its rows."""
    algorithm: Any = algorithms.find(settings.algorithm)
    assert settings.data is not None
    needs, sampling = algorithm.needs(settings.config), settings.data.sampling
    spec = checked_problem(settings)
    dataset = logbook.opened(settings.data)  # in the spaces of that problem

    def create() -> Source:  # anew for each run: an iteration gives memory away
        source: Source = _augmented(settings, Logged.create(dataset, needs, sampling), dataset.spec)
        return source

    return spec, create


def _lived(settings: Settings, world: World) -> Callable[..., Run]:
    """Of runs whose agents act."""
    source_of = source_maker(settings, world, parts(settings)[0].room)
    spec = problem(settings, world)

    def make(seeds: Int[Array, "seed"], own: Any) -> tuple[Agent, Any]:
        agent = create_agent(settings, spec, seeds, own)
        _within_reach(settings, world)  # after other mistakes about actions
        return agent, source_of(keys.at(seeds, "source", 0), agent)

    create = jax.jit(make, compiler_options=once()) if world.exact else make

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        agent, source = create(seeds, own)
        if warm:
            by_chance = settings.guide is None
            source = source.warm(agent, keys.at(seeds, "warm", 0), chance=by_chance)
        source = mixed(settings, source, world.spec)
        return Run(agent, source, seeds, jnp.zeros((), jnp.int32))

    return begin


def _within_reach(settings: Settings, world: World) -> None:
    """Raises Mistake where agents that learn from a replay, which act in [-1, 1], would act in a
    box that is not brought to that. Who begins with a log may: it imitates what lies within."""
    box, algorithm = world.spec.action, algorithms.find(settings.algorithm)
    if not algorithm.needs(settings.config).replays or not isinstance(box, Box):
        return
    if not is_bounded(box):
        raise Mistake(
            f"{settings.title} acts between bounds only, and {settings.name} takes actions of "
            f"{box}; use ppo, or give its action_space bounds at most {WIDEST:.0e} apart"
        )


def source_maker(
    settings: Settings, world: World, room: int
) -> Callable[[Key[Array, "seed"], Agent], Any]:
    """What makes the source of fresh experience: whole episodes, rollouts, or a replay of what is
    not logged. ``room``: steps per seed that it will live, in all phases that share it."""
    algorithm: Any = algorithms.find(settings.algorithm)
    needs = algorithm.needs(settings.config)
    relabel = hindsight.maker(settings.hindsight, world, settings.name)

    def create(start: Key[Array, "seed"], agent: Agent) -> Source:
        if needs.of(EPISODES):
            return Population.create(world, needs.collect)
        begin = partial(Rollout.create, world, needs.collect, start)
        lived = guided(settings, world, needs.collect, begin, agent)
        lived = sources.lived(settings.sources, lived, start, agent)
        if not needs.replays:
            return sources.whole(settings.sources, lived)
        own, stack = logbook.divided(settings, needs)[1], getattr(world, "stack", 1)
        own = sources.kept(settings.sources, own)
        real = unlabelled(awake(own))
        replay = Replay.create(lived, real, stack, start, room, actor=agent, relabel=relabel)
        return sources.whole(settings.sources, _around(replay, own))

    return create


def _around(replay: Replay, needs: AnyNeeds) -> Source:
    """The replay, with whoever makes more of it than batches of its rows."""
    source: Any = replay
    for feed in needs.feeds:
        if feed.of == DREAM:
            source = Dream.create(source, feed)
        if feed.of == LABELS:
            source = Preferences.create(source, feed)
    return source


def mixed(settings: Settings, source: Any, spec: Spec) -> Any:
    """The source, and beside it the log's share of every batch."""
    algorithm: Any = algorithms.find(settings.algorithm)
    needs = algorithm.needs(settings.config)
    own = logbook.divided(settings, needs)[0]
    if own is None:
        return _augmented(settings, source, spec)
    assert settings.data is not None  # rows come from it
    logged = Logged.create(logbook.opened(settings.data), own, settings.data.sampling)
    return _augmented(settings, Mix((logged, source)), spec)


def _augmented(settings: Settings, source: Any, spec: Spec) -> Any:
    """The source, every batch of it changed where the settings ask for it."""
    if not settings.augment:
        return source
    change = named(settings.augment)
    suits(change, spec)  # raises before anything is compiled
    return Augment(source, change)


def make_world(settings: Settings, purpose: str = "train", copies: int | None = None) -> World:
    """The settings' world, ``copies`` (default: ``settings.envs``) for each seed."""
    needs_world(settings)
    check_free(settings.env_options)
    count = settings.envs if copies is None else copies
    return envs.make(
        settings.environment,
        settings.seeds,
        count,
        purpose=purpose,
        strategy=settings.inside,
        **settings.env_options,
    )


def training_purpose(at: int) -> str:
    """The purpose of a world in which agents learn from iteration ``at`` on."""
    return f"train/from-{at}" if at else "train"


def needs_world(settings: Settings) -> None:
    """Raises Mistake for a run whose log names no environment."""
    if not settings.environment:
        raise Mistake("the log of this run names no environment: there is no world to act in")


def problem(settings: Settings, world: World | None = None) -> Spec:
    """What the algorithm is told; where there is a log, ``world`` must have the log's spaces."""
    if settings.data is None:
        assert world is not None
        spec, log = world.spec, None
    else:
        spec, log = logbook.spec(settings, world)
    return dataclasses.replace(spec, envs=settings.envs, iterations=iterations(settings), log=log)


def checked_problem(settings: Settings) -> Spec:
    """``problem``, after a look at the world that the agents will be judged in."""
    if not settings.environment:
        return problem(settings)
    world = make_world(settings, "evaluate", 1)
    try:
        return problem(settings, world)
    finally:
        world.close()
