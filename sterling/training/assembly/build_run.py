"""Build a run from its settings: the world, the agent and the sources, for every seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import algorithms, envs, random_keys
from sterling.envs.actions.action_bounds import has_open_side
from sterling.envs.env_options import check_reserved_names
from sterling.equations.augmentation_words import fit_augmentation
from sterling.experience.batch_draws import Source
from sterling.experience.offline.batch_augmentation import Augment
from sterling.experience.offline.beside_log import BesideLog
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.preferences.preference_queries import Preferences, needs_without_labels
from sterling.experience.replay.imagined_rollouts import Dream, needs_without_dreams
from sterling.experience.replay.kept_extras import with_kept_totals
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.adaptation_rollout import Adaptation
from sterling.experience.rollouts.new_episodes import NewEpisodes
from sterling.experience.rollouts.population_episodes import Population
from sterling.experience.rollouts.rollout import Rollout
from sterling.needs.feed import DREAM, EPISODES, LABELS, STEPS
from sterling.nets.encoding.encoder_choice import find_encoder
from sterling.problem.critic_only_obs import with_critic_obs
from sterling.system.terminal_messages import checks_passed, print_notice
from sterling.training.agent import Agent, create_agent
from sterling.training.assembly import build_sources, run_dataset
from sterling.training.assembly.guide_policy import guided_rollout
from sterling.training.config import hindsight_option
from sterling.training.config.settings import Settings
from sterling.training.loop import Run
from sterling.training.phases.phase_sequence import acts_in_world, plan_phases, total_iterations
from sterling.training.runtime.compilation import startup_compiler_options
from sterling.training.runtime.memory_footprint import check_memory
from sterling.training.runtime.program_store import StoredJit
from sterling.training.warm_start.start_agent import start_agent
from sterling.types import AnyNeeds, Mistake, Spec, World


def build_first_phase(settings: Settings, *, warm: bool = True, at: int = 0) -> Run:
    """Build a run at iteration 0. Without ``warm`` the replay stays empty, as for resuming.

    ``at`` is the iteration to resume from. A world that cannot be saved then begins other episodes
    than at first: otherwise a run that is stopped often would see only the first ones.
    """
    check_memory(settings)
    world = make_world(settings, training_purpose(at)) if acts_in_world(settings) else None
    seeds = jnp.asarray(np.asarray(settings.seeds, np.int32))  # converted by NumPy: no program
    return run_builder(settings, world)(seeds, None, warm)


def run_builder(settings: Settings, world: World | None) -> Callable[..., Run]:
    """Return ``begin(seeds, own, warm)``, which creates runs at iteration 0 and is compiled only
    once; all runs share ``world`` if agents act (see ``acts_in_world``).

    ``own`` gives each member of the seed axis its own numbers (see ``Agent.create``), or is None.
    ``seeds`` may then contain a seed several times: such members get the same random numbers.
    """
    if world is not None:
        return _world_run_builder(settings, world)
    if settings.speech is None:
        return _log_run_builder(settings)
    from sterling.training.language import (
        build_language_run,  # tokenizers and text worlds take time to import
    )

    return build_language_run.run_builder(settings)


def _log_run_builder(settings: Settings) -> Callable[..., Run]:
    """Return ``begin`` for runs that learn from their log."""
    spec, source_of = log_source(settings)

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        agent = create_agent(settings, spec, seeds, own)
        run_dataset.check_tells_channels(settings, agent, spec)
        if warm and settings.init is not None:
            agent = start_agent(settings, spec, agent)
        return Run(agent, source_of(seeds, agent), seeds, jnp.zeros((), jnp.int32))

    return begin


def log_source(settings: Settings) -> tuple[Spec, Callable[[Int[Array, "seed"], Agent], Source]]:
    """Return the log's problem, and a function that creates the source of its rows for agents."""
    algorithm: Any = algorithms.find(settings.algorithm)
    assert settings.data is not None
    needs, sampling = algorithm.needs(settings.config), settings.data.sampling
    spec = checked_problem_spec(settings)
    dataset = run_dataset.read_log_in_world(settings.data)  # in the spaces of that problem
    if any(feed.priority for feed in needs.feeds):
        print_notice(f"{settings.title} draws rows of a log by --sampling, not by their priority")

    def create(seeds: Int[Array, "seed"], agent: Agent) -> Source:  # new arrays: a run donates them
        own = needs_without_dreams(needs)
        log = DatasetSource.create(dataset, own, sampling, spec)
        keys = random_keys.for_seeds(seeds, "source", 0)
        rows = _beside_log(settings, _wrap_stored(log, needs, keys, agent))
        source: Source = _augment_batches(settings, rows, dataset.spec)
        return source

    return spec, create


def _world_run_builder(settings: Settings, world: World) -> Callable[..., Run]:
    """Return ``begin`` for runs whose agents act."""
    source_of = source_builder(settings, world, plan_phases(settings)[0].room)
    spec = problem_spec(settings, world)

    def make(seeds: Int[Array, "seed"], own: Any) -> tuple[Agent, Any]:
        agent = create_agent(settings, spec, seeds, own)
        _check_action_bounds(settings, world)  # after the algorithm's own checks of actions
        return agent, source_of(random_keys.for_seeds(seeds, "source", 0), agent)

    create = _stored_creation(make) if world.exact else make

    def start(seeds: Int[Array, "seed"], own: Any) -> tuple[Agent, Any]:
        actions = run_dataset.world_spaces(world)[1]
        agent = start_agent(settings, spec, create_agent(settings, spec, seeds, own), actions)
        _check_action_bounds(settings, world)
        fresh = jax.jit(source_of) if world.exact else source_of
        return agent, fresh(random_keys.for_seeds(seeds, "source", 0), agent)

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        starts = warm and settings.init is not None  # a resumed run is read from its checkpoint
        agent, source = (start if starts else create)(seeds, own)
        if warm:
            by_chance = settings.guide is None and settings.init is None
            keys = random_keys.for_seeds(seeds, "warm", 0)
            if not source.traced:  # it may take long; a traced one's program is checked afterwards
                checks_passed()
            source = source.warm_up(agent, keys, chance=by_chance)
        source = mix_with_log(settings, source, world.spec)
        return Run(agent, source, seeds, jnp.asarray(np.int32(0)))

    return begin


def _stored_creation(make: Callable[..., tuple[Agent, Any]]) -> Callable[..., tuple[Agent, Any]]:
    """Return ``make`` as one program."""
    jitted = jax.jit(make, compiler_options=startup_compiler_options())
    return StoredJit("create", jitted, jitted.eval_shape)


def _check_action_bounds(settings: Settings, world: World) -> None:
    """Raise Mistake if an off-policy agent, which acts in [-1, 1], would act in a box with open
    sides. A run that begins with a log may: its actions are imitated from the log."""
    box, algorithm = world.spec.action, algorithms.find(settings.algorithm)
    if not algorithm.needs(settings.config).replays or not has_open_side(box):
        return
    raise Mistake(
        f"{settings.title} acts within bounds, which {box} of {settings.name} lacks. Give "
        "--env action_bound=B (open sides then end at -B and B, or 2 B from a side that has a "
        "bound), or use ppo."
    )


def source_builder(
    settings: Settings, world: World, room: int
) -> Callable[[Key[Array, "seed"], Agent], Any]:
    """Return a function that creates the source of the agents' own experience: whole episodes,
    rollouts, or a replay. ``room``: its steps per seed, in all phases that share it."""
    algorithm: Any = algorithms.find(settings.algorithm)
    needs = algorithm.needs(settings.config)
    relabel = hindsight_option.relabel_factory(settings.hindsight, world, settings.name)

    def create(start: Key[Array, "seed"], agent: Agent) -> Source:
        if needs.has_feed(EPISODES):
            steps = any(STEPS in feed.add for feed in needs.feeds)
            return Population.create(world, needs.collect, recorded=steps)
        if needs.adapts_rollouts:
            return Adaptation.create(world, needs)
        begin = partial(Rollout.create, world, needs.collect, start)
        rollouts: Any = guided_rollout(settings, world, needs.collect, begin, agent)
        rollouts = NewEpisodes(rollouts) if needs.members else rollouts
        rollouts = build_sources.wrap_rollouts(settings.sources, rollouts, start, agent)
        if not needs.replays:
            rollouts = with_kept_totals(rollouts, needs)
            return build_sources.wrap_source(settings.sources, rollouts)
        own, stack = run_dataset.split_needs(settings, needs)[1], getattr(world, "stack", 1)
        own = build_sources.with_kept_extras(settings.sources, own)
        real = needs_without_labels(needs_without_dreams(own))
        replay = Replay.create(rollouts, real, stack, start, room, actor=agent, relabel=relabel)
        return build_sources.wrap_source(settings.sources, _wrap_stored(replay, own, start, agent))

    return create


def _wrap_stored(source: Any, needs: AnyNeeds, keys: Key[Array, "seed"], agent: Agent) -> Source:
    """Return a replay or a log, wrapped by sources of model rollouts and preferences if needed."""
    for feed in needs.feeds:
        if feed.of == DREAM:
            source = Dream.create(source, feed, keys, agent)
        if feed.of == LABELS:
            source = Preferences.create(source, feed)
    made: Source = source
    return made


def mix_with_log(settings: Settings, source: Any, spec: Spec) -> Any:
    """Return the source, mixed with the log's share of every batch."""
    algorithm: Any = algorithms.find(settings.algorithm)
    needs = algorithm.needs(settings.config)
    own = run_dataset.split_needs(settings, needs)[0]
    source = _beside_log(settings, source)
    if own is None:
        return _augment_batches(settings, source, spec)
    assert settings.data is not None  # the log's needs exist only with a log
    dataset, sampling = run_dataset.read_log_in_world(settings.data), settings.data.sampling
    logged = DatasetSource.create(dataset, own, sampling, spec)
    return _augment_batches(settings, Mix((logged, source)), spec)


def _beside_log(settings: Settings, source: Any) -> Any:
    """Return the source with the rows of the log that the learner asks for beside its batches."""
    algorithm: Any = algorithms.find(settings.algorithm)
    needs, log = algorithm.needs(settings.config), settings.data
    if not needs.beside_log:
        return source
    assert log is not None  # check_log_and_replay refuses such a learner without one
    rows = run_dataset.read_log_in_world(log)
    return BesideLog.create(source, rows, needs, log.sampling)


def _augment_batches(settings: Settings, source: Any, spec: Spec) -> Any:
    """Return the source with the settings' data augmentation, if there is one."""
    if not settings.augment:
        return source
    return Augment(source, fit_augmentation(settings.augment, spec))  # raises before compilation


def make_world(settings: Settings, purpose: str = "train", copies: int | None = None) -> World:
    """Build the settings' world with ``copies`` envs for each seed (default: ``settings.envs``)."""
    check_has_environment(settings)
    check_reserved_names(settings.env_options)
    count = settings.envs if copies is None else copies
    world: Any = envs.make(
        settings.environment,
        settings.seeds,
        count,
        purpose=purpose,
        strategy=settings.program_strategy,
        **settings.env_options,
    )
    declared = world.spec
    world.spec = with_critic_obs(declared, settings.critic_obs, settings.obs)
    world.declared_spec = declared  # what a guide observes does not depend on this run's options
    made: World = world
    return made


def training_purpose(at: int) -> str:
    """Return the purpose (for random keys) of a training world used from iteration ``at`` on."""
    return f"train/from-{at}" if at else "train"


def check_has_environment(settings: Settings) -> None:
    """Raise Mistake for a run whose log names no environment."""
    if not settings.environment:
        raise Mistake(
            "this run's dataset names no environment, so its agents cannot act. Train with "
            "--environment ENV, or estimate from the dataset: sterling evaluate RUN --method fqe"
        )


def problem_spec(settings: Settings, world: World | None = None) -> Spec:
    """Return the problem for the algorithm; with a log, ``world`` must have the log's spaces."""
    if settings.data is None:
        assert world is not None
        spec, log = world.spec, None
    else:
        spec, log = run_dataset.spec_and_summary(settings, world)
    return dataclasses.replace(
        spec,
        envs=settings.envs,
        iterations=total_iterations(settings),
        log=log,
        encoder=find_encoder(settings.encoder),
    )


def checked_problem_spec(settings: Settings) -> Spec:
    """Return the problem, checked against the world in which the agents will be evaluated."""
    if not settings.environment:
        return problem_spec(settings)
    world = make_world(settings, "evaluate", 1)
    try:
        return problem_spec(settings, world)
    finally:
        world.close()
