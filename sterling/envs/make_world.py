"""Make a world: from a name or a user's environment, with its options and the usual wrappers."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from sterling.envs.env_options import (
    FINAL,
    HOST_OPTIONS,
    check_bool,
    check_gymnasium_options,
    check_options,
    check_time_limit,
    check_whole_number,
    gymnasium_option_names,
)
from sterling.envs.levels import level_options
from sterling.envs.registry import NATIVE_BACKENDS, find_backend, make_native_task
from sterling.envs.summaries import OPTION, with_summaries
from sterling.types import Mistake, World

ATARI = {"frame_skip": 4, "noop_max": 30, "repeat_action_probability": 0.0, "episodic_life": True}
ATARI_STACK = 4


def make(
    environment: Any,  # a name, a reference, a Task or a factory; anything else raises a Mistake
    seeds: tuple[int, ...],
    envs: int,
    *,
    purpose: str = "train",
    strategy: str = "vmap",
    stack: Any = None,  # int or None, and a bool; other values raise a Mistake
    flatten: Any = False,
    action_bound: Any = None,  # a number or None
    **options: Any,
) -> World:
    """Make a world: ``envs`` copies of an environment for each of ``seeds``.

    Args:
        environment: a name (see ``names``), a reference, a Task, or a function that builds a
            ``gymnasium.Env``, a Task or a World (see ``envs/user_env.py``).
        seeds: one per agent; a world of several seeds equals the worlds of each seed.
        envs: parallel copies per seed.
        purpose: "train" or "evaluate". The episodes differ; if the world has a fixed number of
            levels (``levels=N``), so do the levels, and for Atari the rules (below). Text after
            a "/" only changes the episodes, in worlds that are not compiled here.
        strategy: "vmap" or "map" over seeds, if the environment itself is compiled.
        stack: number of stacked observations; default 4 for Atari, else 1.
        flatten: observe images as vectors. On tiny images, such as MinAtar's, a small
            perceptron learns much faster than convolutions do.
        action_bound: B, where a box of actions has no bounds: open sides then end at -B and B, or
            2 B from the side that has a bound. None: actions stay unbounded.
        options: the environment's own, such as ``max_episode_steps``; for every environment
            ``summaries``, a reference to a dict of summaries (``envs/summaries.py``).

    Actions of bounded boxes are rescaled to [-1, 1]; bounds more than a million apart count as
    unbounded. Actions that are a Dict or a Tuple become one row (``actions/flat_actions.py``).
    Atari games follow Mnih 2015: 84 x 84 grey images, every action repeated 4 times, up to 30 no-
    ops at the start, and for training rewards clipped to their sign (unless ``reward_clip=False``)
    and a lost life as the end of an episode; scores always count whole games and unclipped rewards.
    Sticky actions are off, as in most published results; ``repeat_action_probability=0.25`` turns
    them on. Raises ``Mistake`` for a name or an option that does not exist.
    """
    if purpose.partition("/")[0] not in ("train", "evaluate"):
        raise Mistake(f"Unknown purpose {purpose!r}. Use 'train' or 'evaluate'.")
    from sterling.envs.world_wrappers import Flatten

    if not seeds or envs < 1:
        raise Mistake(f"Got {len(seeds)} seeds and {envs} envs. Give at least one of each.")
    check_bool("flatten", flatten)
    if stack is not None:
        check_whole_number("stack", stack, 1)
    copies = {"seeds": tuple(seeds), "envs": envs}
    reference = options.pop(OPTION, None)
    world = _make_unflattened(
        environment, copies, options, purpose=purpose, strategy=strategy, stack=stack
    )
    world = _with_plain_actions(world, action_bound)
    world = Flatten(world) if flatten else world
    return world if reference is None else with_summaries(world, reference)


def _with_plain_actions(world: World, bound: Any) -> World:
    """Wrap a world: end open sides of its boxes of actions if asked, nested actions as one row, and
    masks as one row of the choices that are then made."""
    from sterling.envs.actions.action_bounds import is_bounded
    from sterling.envs.actions.action_masks import FlattenActionMask, has_unsupported_mask
    from sterling.envs.actions.bounded_actions import BoundedActions, RescaleAction
    from sterling.envs.actions.flat_actions import FlatActions, needs_flat_actions

    if bound is not None:
        world = BoundedActions(world, bound)
        world = RescaleAction(world) if is_bounded(world.spec.action) else world
    world = FlatActions(world) if needs_flat_actions(world.spec.action) else world
    return FlattenActionMask(world) if has_unsupported_mask(world.spec) else world


def option_names(environment: Any) -> set[str] | None:
    """Return the names of an environment's options, those of :func:`make` included; None if they
    cannot be known before the environment is made, as for a function with ``**options``."""
    from sterling.envs import user_env

    backend, name = find_backend(environment)
    names = {"stack", "flatten", "action_bound", "max_episode_steps", OPTION}
    if backend == "envpool":
        from sterling.envs.compiled import envpool_env

        return {*names, "channels", *envpool_env.option_names(name)}
    if backend == "gymnax":
        from sterling.envs.compiled import gymnax_env

        return {*names, *gymnax_env.option_names(name)}
    if backend in NATIVE_BACKENDS:
        return {*names, *_native_options(backend, make_native_task(backend, name)[0])}
    if backend == "gymnasium":
        own = gymnasium_option_names(name)
        return None if own is None else {*names, *own, *HOST_OPTIONS}
    if backend in user_env.KINDS:
        own = user_env.option_names(name)
        return None if own is None else {*names, *own, *HOST_OPTIONS}
    return None


def _make_unflattened(
    environment: Any,
    copies: dict[str, Any],
    options: dict[str, Any],
    *,
    purpose: str,
    strategy: str,
    stack: int | None,
) -> World:
    """Make the world with its backend and its wrappers, except ``Flatten``."""
    from sterling.envs import user_env

    backend, name = find_backend(environment)
    if options.get("max_episode_steps", 0) is None:  # None: the usual limit
        options = {key: value for key, value in options.items() if key != "max_episode_steps"}
    if backend in user_env.KINDS:
        how = {"purpose": purpose, "strategy": strategy}
        return _wrap_world(user_env.make_user_world(name, copies, how, options), stack)
    if "max_episode_steps" in options:
        check_time_limit(backend, options["max_episode_steps"])
    if backend == "envpool":
        return _make_envpool_world(name, copies, purpose, stack, options)
    if backend == "gymnasium":
        return _wrap_world(_make_gymnasium_world(name, copies, purpose, options), stack)
    if backend == "pettingzoo":
        from sterling.envs.hosted import pettingzoo_env

        return _wrap_world(pettingzoo_env.make_world(name, copies, purpose, options), stack)
    how = {"strategy": "vmap" if strategy == "processes" else strategy, "purpose": purpose}
    return _wrap_world(_make_compiled_world(backend, name, copies, how, options), stack)


def _wrap_world(world: World, stack: int | None) -> World:
    """Wrap a world: stack observations if asked, rescale bounded actions to [-1, 1]."""
    from sterling.envs.actions.action_bounds import is_bounded
    from sterling.envs.actions.bounded_actions import RescaleAction
    from sterling.envs.frame_stack import FrameStack

    world = world if stack in (None, 1) else FrameStack(world, stack)
    return RescaleAction(world) if is_bounded(world.spec.action) else world


def _make_envpool_world(
    name: str, copies: dict[str, Any], purpose: str, stack: int | None, options: dict[str, Any]
) -> World:
    """Make a world of EnvPool, with the usual wrappers and options for Atari games."""
    from sterling.envs.compiled import envpool_env
    from sterling.envs.world_wrappers import ClipReward

    atari = envpool_env.is_atari(name)
    if atari and "stack_num" in options:
        raise Mistake(
            f"Sterling itself stacks the frames of {name}. Use stack={options['stack_num']}."
        )
    if "num_threads" in options:
        # EnvPool aborts the process on other values
        check_whole_number("num_threads", options["num_threads"], 0)
    clip = envpool_env.is_training_purpose(purpose) and envpool_env.clips_rewards(name, options)
    if atari:  # EnvPool's own clipping would also clip the scores
        options = {**ATARI, "stack_num": 1, **options, "reward_clip": False}
    world: World = envpool_env.EnvPoolWorld(name, **copies, purpose=purpose, **options)
    world = _wrap_world(world, ATARI_STACK if atari and stack is None else stack)
    return ClipReward(world) if clip else world


def _make_compiled_world(
    backend: str, name: str, copies: dict[str, Any], how: dict[str, Any], options: dict[str, Any]
) -> World:
    """Make a world that is a JAX program; ``how`` holds its strategy and purpose."""
    from sterling.envs.traced_world import TracedWorld

    if backend == "gymnax":
        from sterling.envs.compiled import gymnax_env

        return gymnax_env.make(name, **copies, strategy=how["strategy"], **options)
    task, limit = make_native_task(backend, name)
    check_options(name, options, ["max_episode_steps", *_native_options(backend, task)])
    if FINAL in options:
        check_bool(FINAL, options[FINAL])
        task = type(task)(task.task, task.episodes, task.limit, options[FINAL])
    limit = options.get("max_episode_steps", limit)
    return TracedWorld(task, **copies, limit=limit, **how, levels=options.get("levels"))


def _native_options(backend: str, task: Any) -> list[str]:
    """Return the names of a native task's own options."""
    return [*level_options(task), *([FINAL] if backend == "trials" else [])]


def _make_gymnasium_world(
    name: str, copies: dict[str, Any], purpose: str, options: dict[str, Any]
) -> World:
    """Make a world of a registered Gymnasium environment, stepped in worker processes."""
    import gymnasium

    from sterling.envs.compiled import envpool_env
    from sterling.envs.goal_worlds.goal_tasks import CHANNEL, GOALS, is_goal_world, with_goals
    from sterling.envs.hosted.hosted_env import HostWorld
    from sterling.envs.hosted.registered_env import make_registered_env

    if reason := envpool_env.unavailable_reason():
        warnings.warn(f"{reason}: {name} is stepped from Python, which is slower.", stacklevel=4)
    # the spec is sent to workers, which do not know what is registered here
    spec = gymnasium.spec(name.rpartition(":")[2])
    own = {key: value for key, value in options.items() if key not in HOST_OPTIONS}
    goals = is_goal_world(name) and own.pop(GOALS, False)
    check_gymnasium_options(name, spec, own, HOST_OPTIONS)
    factory: Any = functools.partial(make_registered_env, spec, **own)
    rest = {key: value for key, value in options.items() if key in HOST_OPTIONS}
    if goals:
        factory, rest = with_goals(factory), {"channels": CHANNEL, **rest}
    return HostWorld(factory, **copies, purpose=purpose, name=name, **rest)
