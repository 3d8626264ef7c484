"""A user's own environments: a Task, or a factory of Gymnasium environments, of Tasks or of Worlds.

Which of these an object is decides how it is run: see :func:`environment_kind`. Gymnasium
environments are built in worker processes only, so that a crash while building one ends nothing
else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
from jaxtyping import PyTree

from sterling.envs.env_options import HOST_OPTIONS, check_options
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.hosted.worker_pool import NotGymnasiumMistake
from sterling.envs.levels import TaskWithLevels, can_begin_episodes, level_options, make_reset
from sterling.envs.traced_world import Task, TracedWorld, task_agents
from sterling.lookup import user_imports
from sterling.lookup.factory_names import factory_name
from sterling.problem.critic_only_obs import check_unseen
from sterling.system.shown_values import shown_value
from sterling.types import Mistake, World

KINDS = ("task", "world", "factory")
LIMIT, LEVELS = "max_episode_steps", "levels"
# what a World must have
WORLD_ATTRIBUTES = ("spec", "seeds", "traced", "exact", "reset", "step", "close")


def environment_kind(environment: Any, name: str = "") -> str:
    """Return what kind of environment a user's object is.

    "task": a Task, or a factory whose annotation says that it returns one. "world": a factory with
    the parameters ``seeds`` and ``envs``. "factory": any other factory; it makes Gymnasium
    environments, or Tasks without saying so. Raises Mistake for anything else.
    """
    if not isinstance(environment, type) and isinstance(environment, Task):
        return "task"
    name = name or factory_name(environment)
    if isinstance(environment, (gymnasium.Env, World)):
        remedy = f"Write `lambda: {type(environment).__name__}(...)`."
        raise Mistake(f"{name} is an environment, not a factory of them. {remedy}")
    if not callable(environment):
        raise Mistake(
            f"{name} is {shown_value(environment)}, which is no environment. Give a Task, or a "
            "factory of Gymnasium environments, Tasks or Worlds (see docs/extending.md)."
        )
    if {"seeds", "envs"} <= set(factory_parameters(environment)):
        return "world"
    made = environment if isinstance(environment, type) else _annotated_return(environment)
    return "task" if _is_task_class(made) else "factory"


def resolve_reference(word: str) -> tuple[str, str]:
    """Return the kind of a reference, and the reference.

    The kind is "gymnasium" for ``module:Name`` if importing the module has registered that name
    with Gymnasium.
    """
    place, name = user_imports.split_reference(word)
    module = user_imports.load(place)
    if name in gymnasium.registry and not hasattr(module, name):
        return "gymnasium", word
    if not name:
        names = [x for x in user_imports.public_names(module) if callable(getattr(module, x))]
        known = ", ".join(names) or "nothing that could be one"
        raise Mistake(f"{word} names no environment. Write {word}:NAME; the file has {known}.")
    return environment_kind(user_imports.load(word), user_imports.short_name(word)), word


def make_user_world(
    environment: Any, copies: dict[str, Any], how: dict[str, str], options: dict[str, Any]
) -> World:
    """Make a world of ``copies`` (seeds, envs) of a user's environment; ``how`` holds its purpose
    and strategy.

    Worker processes import a reference themselves; anything else is pickled and sent to them.
    """
    word = environment if isinstance(environment, str) else None
    loaded = user_imports.load(word) if word else environment
    name = user_imports.short_name(word) if word else factory_name(loaded)
    # seeds that run in processes have one world each
    how = {**how, "strategy": how["strategy"].replace("processes", "vmap")}
    what = environment_kind(loaded, name)
    if what == "world":
        return _make_factory_world(loaded, name, copies, how, options)
    if what == "task":
        return _make_task_world(loaded, name, copies, how, options)
    own = {key: value for key, value in options.items() if key not in HOST_OPTIONS}
    is_wrapped = LIMIT in own and LIMIT not in factory_parameters(loaded)
    limit = {LIMIT: own.pop(LIMIT)} if is_wrapped else {}
    _check_accepted(loaded, name, own)
    build = functools.partial(user_imports.call_factory, word, **own) if word else loaded
    build = functools.partial(loaded, **own) if own and not word else build
    try:
        rest = {key: value for key, value in options.items() if key in HOST_OPTIONS}
        world = HostWorld(build, **copies, purpose=how["purpose"], name=name, **rest)
    except NotGymnasiumMistake:  # the factory makes Tasks without saying so
        if not isinstance(_call_factory(loaded, name, own), Task):
            raise
        return _make_task_world(loaded, name, copies, how, {**own, **limit})
    if limit:
        world.close()
        _check_accepted(loaded, name, limit)
    return world


def factory_parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return a factory's parameters by name; nothing if Python does not know them."""
    try:
        return dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return {}


def option_names(thing: Any) -> set[str] | None:
    """Return the options that a user's environment takes; None if a function takes any."""
    loaded = user_imports.load(thing) if isinstance(thing, str) else thing
    if isinstance(loaded, Task) and not isinstance(loaded, type):
        return {LIMIT, *level_options(loaded)}
    taken = factory_parameters(loaded)
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return None
    return {LIMIT, LEVELS, *taken} - {"seeds", "envs", "purpose", "strategy"}


def _make_task_world(
    loaded: Any, name: str, copies: dict[str, Any], how: dict[str, Any], options: dict[str, Any]
) -> World:
    """Make the world of a Task with the options ``max_episode_steps`` and ``levels``."""
    if isinstance(loaded, Task) and not isinstance(loaded, type):
        task: Any = loaded
        ours, own = [LIMIT, *level_options(task)], {}
    else:
        taken = factory_parameters(loaded)
        own = {
            each: x for each, x in options.items() if each in taken or each not in (LIMIT, LEVELS)
        }
        _check_accepted(loaded, name, own, LIMIT)
        task = _call_factory(loaded, name, own)
        ours = [each for each in (LIMIT, *level_options(task)) if each not in taken]
    check_options(name, options, [*own, *ours])
    if not isinstance(task, Task) or not can_begin_episodes(task):
        raise Mistake(
            f"{name} returned {shown_value(task)}, which is no Task. Return an object with obs, "
            "action, reset and step (see docs/extending.md)."
        )
    check_task(task, name)
    said = {each: options[each] for each in ours if options.get(each) is not None}
    return TracedWorld(task, **copies, **how, limit=said.get(LIMIT, 0), levels=said.get(LEVELS))


def check_task(task: Task, name: str) -> None:
    """Raise Mistake if a Task cannot be traced, or its ``reset`` and ``step`` do not fit together.

    Only shapes and types are traced; nothing is computed.
    """
    for part in ("obs", "action"):
        space = getattr(task, part)
        if not isinstance(space, gymnasium.Space):
            raise Mistake(
                f"{name}: {part} is {shown_value(space)}. Make it a gymnasium.spaces.Space."
            )
    key = jax.random.key(0)
    words, given = "reset", "key"
    if isinstance(task, TaskWithLevels):
        words, given = "begin", "level, key"
        level = _result_shapes(task.level, f"{name}: level(key)", 0, key)
        if hasattr(task, "edit"):
            edited = _result_shapes(task.edit, f"{name}: edit(level, key)", 0, level, key)
            _check_same_shapes(f"{name}: the level of edit", edited, f"that of {name}.level", level)
    state, obs = _result_shapes(make_reset(task), f"{name}: {words}({given})", 2, key)
    action = jax.tree.map(jax.numpy.asarray, task.action.sample())
    said = f"{name}: step(state, action, key)"
    parts = 5 + bool(getattr(task, "channels", {}))
    moved, seen, reward, *ends = _result_shapes(task.step, said, parts, state, action, key)
    _check_same_shapes(f"{name}: the state of step", moved, f"that of {name}.{words}", state)
    _check_same_shapes(f"{name}: the observation of step", seen, f"that of {name}.{words}", obs)
    agents = task_agents(task)
    for part, value in (("reward", reward), ("terminated", ends[0]), ("truncated", ends[1])):
        wanted = (len(agents),) if agents and part == "reward" else ()
        if getattr(value, "shape", None) != wanted:
            count = f"one number for each of {len(agents or ())} agents" if wanted else "one number"
            raise Mistake(f"{name}: step must return {count} as {part}; got {value}")
        if part == "reward" and jax.numpy.issubdtype(value.dtype, jax.numpy.complexfloating):
            raise Mistake(f"{name}: step must return a real reward; got {value.dtype}")
        if part != "reward" and value.dtype != bool:
            raise Mistake(f"{name}: step must return a bool as {part}; got {value.dtype}")


def _result_shapes(function: Callable[..., Any], what: str, count: int, *given: Any) -> Any:
    try:
        made = jax.eval_shape(function, *given)
    except Exception as error:
        raise Mistake(f"{what} cannot be traced: {user_imports.describe_error(error)}") from error
    if count and (not isinstance(made, tuple) or len(made) != count):
        parts = {
            2: "state and observation",
            5: "state, obs, reward, terminated and truncated",
            6: "state, obs, reward, terminated, truncated and channels",
        }
        raise Mistake(f"{what} must return {parts[count]}; got {shown_value(made)}")
    return made


def _check_same_shapes(what: str, made: PyTree, other: str, wanted: PyTree) -> None:
    first, second = (jax.tree_util.tree_leaves_with_path(tree) for tree in (made, wanted))
    if [path for path, _ in first] != [path for path, _ in second]:
        raise Mistake(f"{what} has a different structure from {other}: {shown_value(made)}")
    for (path, one), (_, two) in zip(first, second, strict=True):
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            part = jax.tree_util.keystr(path)
            raise Mistake(
                f"{what}{part} is {one.dtype}{list(one.shape)}, but {other} is "
                f"{two.dtype}{list(two.shape)}. Make them equal."
            )


def _make_factory_world(
    factory: Any, name: str, copies: dict[str, Any], known: dict[str, Any], options: dict[str, Any]
) -> World:
    """Make the world of a factory that takes ``seeds`` and ``envs``, and check it."""
    taken = factory_parameters(factory)
    _check_accepted(factory, name, options)
    free = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    given = {key: value for key, value in known.items() if key in taken or free}
    world = _call_factory(factory, name, {**copies, **given, **options})
    lacking = [part for part in WORLD_ATTRIBUTES if not hasattr(world, part)]
    if lacking:
        raise Mistake(
            f"{name} returned {shown_value(world)}, which is no World. Add {', '.join(lacking)}."
        )
    check_unseen(world.spec.unseen, world.spec.obs)
    made, wanted = (world.seeds, world.spec.envs), (len(copies["seeds"]), copies["envs"])
    if made != wanted:
        raise Mistake(
            f"{name} was asked for {wanted[0]} seeds x {wanted[1]} envs but made a world with "
            f"{made[0]} x {made[1]}."
        )
    return world


def _call_factory(factory: Callable[..., Any], name: str, options: dict[str, Any]) -> Any:
    try:
        return factory(**options)
    except Mistake:
        raise
    except Exception as error:
        raise Mistake(f"{name} raises {user_imports.describe_error(error)}") from error


def _check_accepted(factory: Any, name: str, options: dict[str, Any], *ours: str) -> None:
    """Raise Mistake for the first option that the factory does not take; those in ``ours`` are
    allowed too."""
    taken = factory_parameters(factory)
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return
    if options and not taken and not ours:
        given = ", ".join(options)
        raise Mistake(f"{name} takes no arguments. Set its options ({given}) inside the function.")
    hidden = ("seeds", "envs", "purpose", "strategy")
    check_options(name, options, [*(each for each in taken if each not in hidden), *ours])


def _annotated_return(factory: Any) -> Any:
    """Return the class that a factory's annotation says it returns, or None."""
    try:
        said = inspect.signature(factory, eval_str=True).return_annotation
    except Exception:  # whatever evaluating a user's annotation raises
        return None
    return said if isinstance(said, type) else None


def _is_task_class(made: Any) -> bool:
    if not isinstance(made, type) or issubclass(made, gymnasium.Env):
        return False
    return can_begin_episodes(made) and hasattr(made, "step")
