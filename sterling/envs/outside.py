"""Environments from outside: a Task, or a factory of Gymnasium environments, of Tasks or of Worlds.

Which of these a user's object is decides how it is run, see :func:`kind`. Gymnasium environments
are built in worker processes only, so that one that crashes as it is built takes nothing along.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
from jaxtyping import PyTree

from sterling import importing
from sterling.envs.gymnasium import Host
from sterling.envs.levels import Levelled, begins, options_of, resetting
from sterling.envs.options import HOST_OPTIONS, check_options
from sterling.envs.traced import Task, Traced, agents_of
from sterling.envs.workers import NoEnvironment
from sterling.naming import called
from sterling.types import Mistake, World
from sterling.unseen import checked

KINDS = ("task", "world", "factory")
LIMIT, LEVELS = "max_episode_steps", "levels"
PARTS = ("spec", "seeds", "traced", "exact", "reset", "step", "close")  # of a World


def kind(thing: Any, name: str = "") -> str:
    """Return what a user's object is: "task" (a Task, or a factory that says it returns one),
    "world" (a factory with the parameters ``seeds`` and ``envs``), or "factory" of Gymnasium
    environments or, if it does not say so, of Tasks. Raises Mistake for anything else."""
    if not isinstance(thing, type) and isinstance(thing, Task):
        return "task"
    name = name or called(thing)
    if isinstance(thing, (gymnasium.Env, World)):
        remedy = f"write `lambda: {type(thing).__name__}(...)` around it"
        raise Mistake(f"{name} is built already: {remedy}")
    if not callable(thing):
        raise Mistake(
            f"{name} is {thing!r:.60}: neither a Task nor a factory of environments, Tasks or "
            "Worlds (see docs/extending.md)"
        )
    if {"seeds", "envs"} <= set(parameters(thing)):
        return "world"
    made = thing if isinstance(thing, type) else _promised(thing)
    return "task" if _makes_tasks(made) else "factory"


def referenced(word: str) -> tuple[str, str]:
    """Return a reference's kind and itself; "gymnasium" for ``module:Name`` where importing the
    module has entered that name into Gymnasium's registry."""
    place, name = importing.split(word)
    module = importing.load(place)
    if name in gymnasium.registry and not hasattr(module, name):
        return "gymnasium", word
    if not name:
        made = ", ".join(importing.public(module)) or "nothing that could be one"
        raise Mistake(f"which environment of {word}? write {word}:NAME; it has {made}")
    return kind(importing.load(word), importing.short(word)), word


def make(
    environment: Any, copies: dict[str, Any], how: dict[str, str], options: dict[str, Any]
) -> World:
    """Return ``copies`` (seeds, envs) of a user's environment as a world; ``how``: its purpose and
    strategy. Worker processes import a reference themselves; anything else is sent to them."""
    word = environment if isinstance(environment, str) else None
    thing = importing.load(word) if word else environment
    name = importing.short(word) if word else called(thing)
    strategy = "vmap" if how["strategy"] == "processes" else how["strategy"]  # alone in a process
    what = kind(thing, name)
    if what == "world":
        return _world(thing, name, copies, {**how, "strategy": strategy}, options)
    if what == "task":
        return _traced(thing, name, copies, {**how, "strategy": strategy}, options)
    own = {key: value for key, value in options.items() if key not in HOST_OPTIONS}
    limit = {} if LIMIT in parameters(thing) or LIMIT not in own else {LIMIT: own.pop(LIMIT)}
    _check_taken(thing, name, own)
    build = functools.partial(importing.build, word, **own) if word else thing
    build = functools.partial(thing, **own) if own and not word else build
    try:
        rest = {key: value for key, value in options.items() if key in HOST_OPTIONS}
        world = Host(build, **copies, purpose=how["purpose"], name=name, **rest)
    except NoEnvironment:  # a factory that did not say that it makes Tasks
        if not isinstance(_built(thing, name, own), Task):
            raise
        return _traced(thing, name, copies, {**how, "strategy": strategy}, {**own, **limit})
    if limit:
        world.close()
        _check_taken(thing, name, limit)
    return world


def parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return what a factory takes, by name; nothing where Python does not know."""
    try:
        return dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return {}


def _traced(
    thing: Any, name: str, copies: dict[str, Any], how: dict[str, Any], options: dict[str, Any]
) -> World:
    """A Task's world, its episodes cut after ``max_episode_steps``, its levels ``levels``."""
    if isinstance(thing, Task) and not isinstance(thing, type):
        task: Any = thing
        ours, own = [LIMIT, *options_of(task)], {}
    else:
        taken = parameters(thing)
        own = {
            each: x for each, x in options.items() if each in taken or each not in (LIMIT, LEVELS)
        }
        _check_taken(thing, name, own, LIMIT)
        task = _built(thing, name, own)
        ours = [each for each in (LIMIT, *options_of(task)) if each not in taken]
    check_options(name, options, [*own, *ours])
    if not isinstance(task, Task) or not begins(task):
        raise Mistake(f"{name} returned {task!r:.60}, which is no Task: it has no obs, action, "
                      "reset and step (see docs/extending.md)")  # fmt: skip
    check_task(task, name)
    said = {each: options[each] for each in ours if options.get(each) is not None}
    return Traced(task, **copies, **how, limit=said.get(LIMIT, 0), levels=said.get(LEVELS))


def check_task(task: Task, name: str) -> None:
    """Raise Mistake where a Task cannot be traced, or ``reset`` and ``step`` do not fit together;
    nothing is computed."""
    for part in ("obs", "action"):
        space = getattr(task, part)
        if not isinstance(space, gymnasium.Space):
            raise Mistake(f"{name}: {part} must be a gymnasium.spaces.Space; got {space!r:.60}")
    key = jax.random.key(0)
    words, given = "reset", "key"
    if isinstance(task, Levelled):
        words, given = "begin", "level, key"
        level = _shapes(task.level, f"{name}: level(key)", 0, key)
        if hasattr(task, "edit"):
            edited = _shapes(task.edit, f"{name}: edit(level, key)", 0, level, key)
            _check_alike(f"{name}: the level of edit", edited, f"that of {name}.level", level)
    state, obs = _shapes(resetting(task), f"{name}: {words}({given})", 2, key)
    action = jax.tree.map(jax.numpy.asarray, task.action.sample())
    said = f"{name}: step(state, action, key)"
    parts = 5 + bool(getattr(task, "channels", {}))
    moved, seen, reward, *ends = _shapes(task.step, said, parts, state, action, key)
    _check_alike(f"{name}: the state of step", moved, f"that of {name}.{words}", state)
    _check_alike(f"{name}: the observation of step", seen, f"that of {name}.{words}", obs)
    agents = agents_of(task)
    for part, value in (("reward", reward), ("terminated", ends[0]), ("truncated", ends[1])):
        wanted = (len(agents),) if agents and part == "reward" else ()
        if getattr(value, "shape", None) != wanted:
            count = f"one number for each of {len(agents or ())} agents" if wanted else "one number"
            raise Mistake(f"{name}: step must answer with {count} as {part}; got {value}")
        if part != "reward" and value.dtype != bool:
            raise Mistake(f"{name}: step must answer with a bool as {part}; got {value.dtype}")


def _shapes(function: Callable[..., Any], what: str, count: int, *given: Any) -> Any:
    try:
        made = jax.eval_shape(function, *given)
    except Exception as error:
        raise Mistake(f"{what} cannot be traced: {importing.explain(error)}") from error
    if count and (not isinstance(made, tuple) or len(made) != count):
        parts = {2: "state and observation", 5: "state, obs, reward, terminated and truncated",
                 6: "state, obs, reward, terminated, truncated and channels"}  # fmt: skip
        raise Mistake(f"{what} must return {parts[count]}; got {made!r:.60}")
    return made


def _check_alike(what: str, made: PyTree, other: str, wanted: PyTree) -> None:
    first, second = (jax.tree_util.tree_leaves_with_path(tree) for tree in (made, wanted))
    if [path for path, _ in first] != [path for path, _ in second]:
        raise Mistake(f"{what} has another structure than {other}: {made!r:.80}")
    for (path, one), (_, two) in zip(first, second, strict=True):
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            part = jax.tree_util.keystr(path)
            raise Mistake(f"{what}{part} is {one.dtype}{list(one.shape)}, {other} is "
                          f"{two.dtype}{list(two.shape)}")  # fmt: skip


def _world(
    factory: Any, name: str, copies: dict[str, Any], known: dict[str, Any], options: dict[str, Any]
) -> World:
    """The world that a factory makes for so many seeds and envs."""
    taken = parameters(factory)
    _check_taken(factory, name, options)
    free = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    given = {key: value for key, value in known.items() if key in taken or free}
    world = _built(factory, name, {**copies, **given, **options})
    lacking = [part for part in PARTS if not hasattr(world, part)]
    if lacking:
        raise Mistake(
            f"{name} returned {world!r:.60}, which is no World: it lacks {', '.join(lacking)}"
        )
    checked(world.spec.unseen, world.spec.obs)
    made, wanted = (world.seeds, world.spec.envs), (len(copies["seeds"]), copies["envs"])
    if made != wanted:
        raise Mistake(f"{name} was asked for {wanted[0]} seeds x {wanted[1]} envs and made a world "
                      f"with {made[0]} x {made[1]}")  # fmt: skip
    return world


def _built(factory: Callable[..., Any], name: str, options: dict[str, Any]) -> Any:
    try:
        return factory(**options)
    except Mistake:
        raise
    except Exception as error:
        raise Mistake(f"{name} raises {importing.explain(error)}") from error


def _check_taken(factory: Any, name: str, options: dict[str, Any], *ours: str) -> None:
    """Raise Mistake for the first option that the factory does not take."""
    taken = parameters(factory)
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return
    if options and not taken and not ours:
        given = ", ".join(options)
        raise Mistake(f"options ({given}) of an environment given as a function belong inside it")
    hidden = ("seeds", "envs", "purpose", "strategy")
    check_options(name, options, [*(each for each in taken if each not in hidden), *ours])


def _promised(factory: Any) -> Any:
    """The class that a factory's signature says it returns, or None."""
    try:
        said = inspect.signature(factory, eval_str=True).return_annotation
    except Exception:  # whatever evaluating a user's annotation raises
        return None
    return said if isinstance(said, type) else None


def _makes_tasks(made: Any) -> bool:
    if not isinstance(made, type) or issubclass(made, gymnasium.Env):
        return False
    return begins(made) and hasattr(made, "step")
