"""Worlds by name. Nothing is imported before it is needed.

A name may say where it comes from: ``envpool:CartPole-v1``, ``classic:CartPole-v1``,
``gymnax:CartPole-v1``, ``gymnasium:CartPole-v1``, ``probe:cut``, ``tabular:chain-8``,
``bandit:5-arms-10-pulls``, ``hazards:3x6``, ``maze:5x5``, ``corridor:40``, ``flip:15``,
``trials:3:maze:4x4``, ``tictactoe:self``, ``spread:3-agents-4x4``,
``pettingzoo:mpe2/simple_spread_v3``.
Without that the first of classic, EnvPool, gymnax and Gymnasium that has the name provides it.
``package:Name-v0`` imports the package first, as in Gymnasium; ``ogbench:`` takes the names of
OGBench's data sets too, for the worlds they were collected in. A user's own environment is an
object or a reference, ``path/to/file.py:factory`` or ``package.module:factory``, or a name that an
installed package registers: see ``envs/outside.py``.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import re
import warnings
from typing import Any

from sterling import importing, plugins
from sterling.envs.options import (
    HOST_OPTIONS,
    check_arguments,
    check_limit,
    check_options,
    check_switch,
    check_whole,
)
from sterling.naming import hint
from sterling.types import Mistake, World

SEARCHED = ("classic", "envpool", "gymnax", "gymnasium")  # for names that do not say
OWN = (
    *("probe", "tabular", "bandit", "hazards", "maze", "corridor", "flip", "trials", "tictactoe"),
    "spread",
)
BACKENDS = (*SEARCHED, *OWN, "pettingzoo")
NATIVE = frozenset(("classic", *OWN))  # Tasks of this package
ATARI = {"frame_skip": 4, "noop_max": 30, "repeat_action_probability": 0.0, "episodic_life": True}
ATARI_STACK = 4
COLLECTED = re.compile(r"(ogbench:.+)-(navigate|stitch|explore|play|noisy)(-.+)")  # and how


def make(
    environment: Any,  # a name, a reference, a Task or a factory; anything else is told so
    seeds: tuple[int, ...],
    envs: int,
    *,
    purpose: str = "train",
    strategy: str = "vmap",
    stack: Any = None,  # int or None, and a bool: what a command line gave is told so in words
    flatten: Any = False,
    **options: Any,
) -> World:
    """``envs`` copies of an environment for each of ``seeds``.

    Args:
        environment: a name (see ``names``), a reference, a Task, or a function that builds a
            ``gymnasium.Env``, a Task or a World (see ``envs/outside.py``).
        seeds: one per agent; a world of several seeds equals the worlds of each seed.
        envs: parallel copies per seed.
        purpose: "train" or "evaluate": other episodes, where the world has a fixed number of levels
            (``levels=N``) other levels, and for Atari other rules (below). What follows a "/"
            stands for other episodes alone, in worlds that are not compiled here.
        strategy: "vmap" or "map" over seeds, where the environment itself is compiled.
        stack: frames that make an observation; default 4 for Atari, else 1.
        flatten: observe pictures as vectors, which a small perceptron learns from much faster
            than convolutions do where pictures are tiny, as MinAtar's are.
        options: what the environment takes, such as ``max_episode_steps``.

    Actions of bounded boxes are rescaled to [-1, 1]; bounds more than a million apart are none.
    Atari games follow Mnih 2015: 84 x 84 grey pictures, every action repeated 4 times, up to 30
    idle steps at the start, and for training rewards clipped to their sign (``reward_clip=False``:
    left as they are) and lives for episodes; scores are always those of whole games.
    Sticky actions are off, as in most published results; ``repeat_action_probability=0.25`` turns
    them on. Raises ``Mistake`` for a name or an option that does not exist.
    """
    if purpose.partition("/")[0] not in ("train", "evaluate"):
        raise Mistake(f"purpose {purpose!r} is not known; use 'train' or 'evaluate'")
    from sterling.envs.wrappers import Flatten

    if not seeds or envs < 1:
        raise Mistake(f"a world needs at least one seed and one env, not {len(seeds)} and {envs}")
    check_switch("flatten", flatten)
    if stack is not None:
        check_whole("stack", stack, 1)
    copies = {"seeds": tuple(seeds), "envs": envs}
    world = _made(environment, copies, options, purpose=purpose, strategy=strategy, stack=stack)
    return Flatten(world) if flatten else world


def _made(
    environment: Any,
    copies: dict[str, Any],
    options: dict[str, Any],
    *,
    purpose: str,
    strategy: str,
    stack: int | None,
) -> World:
    """The world as its backend gives it, dressed."""
    from sterling.envs import outside

    backend, name = find(environment)
    if options.get("max_episode_steps", 0) is None:  # as if it were not given
        options = {key: value for key, value in options.items() if key != "max_episode_steps"}
    if backend in outside.KINDS:
        how = {"purpose": purpose, "strategy": strategy}
        return _dressed(outside.make(name, copies, how, options), stack)
    if "max_episode_steps" in options:
        check_limit(backend, options["max_episode_steps"])
    if backend == "envpool":
        return _pool(name, copies, purpose, stack, options)
    if backend == "gymnasium":
        return _dressed(_registered_world(name, copies, purpose, options), stack)
    if backend == "pettingzoo":
        return _dressed(_module(backend).world(name, copies, purpose, options), stack)
    how = {"strategy": "vmap" if strategy == "processes" else strategy, "purpose": purpose}
    return _dressed(_compiled(backend, name, copies, how, options), stack)


def names(pattern: str | None = None) -> dict[str, list[str]]:
    """The names of every backend, those that contain ``pattern`` (``*`` and ``?`` are wild)."""
    wanted = f"*{(pattern or '').lower()}*"
    found = {backend: _names(backend) for backend in BACKENDS}
    return {
        backend: [name for name in each if fnmatch.fnmatchcase(_full(backend, name), wanted)]
        for backend, each in found.items()
    }


def _full(backend: str, name: str) -> str:
    """The name to be searched in: with its backend, where that is part of how it is written."""
    return name.lower() if backend in SEARCHED else f"{backend}:{name}".lower()


def find(environment: Any) -> tuple[str, Any]:
    """Return the backend of a name, and the name without the backend's prefix; of what comes from
    outside the kind (``outside.KINDS``), and the reference or the object itself."""
    from sterling.envs import outside

    if not isinstance(environment, str):
        return outside.kind(environment), environment
    environment = COLLECTED.sub(r"\1\3", environment)
    prefix, colon, rest = environment.partition(":")
    if colon and prefix in BACKENDS:
        if not _knows(prefix, rest):
            raise Mistake(_unknown(environment, [f"{prefix}:{name}" for name in _names(prefix)]))
        return prefix, rest
    if importing.is_reference(environment) and (colon or environment.endswith(importing.SUFFIX)):
        return outside.referenced(environment)
    for backend in SEARCHED:
        if _knows(backend, environment):
            return backend, environment
    registered = plugins.registered(plugins.WORLDS)
    if environment in registered:
        return outside.referenced(registered[environment].word)
    known = [name for backend in SEARCHED for name in _names(backend)] + list(registered)
    known += [f"{own}:{name}" for own in BACKENDS[len(SEARCHED) :] for name in _names(own)]
    raise Mistake(_unknown(environment, known))


def _unknown(environment: str, known: list[str]) -> str:
    from sterling.envs import envpool

    unknown = f"environment {environment!r} is not known"
    head, slash, name = environment.partition("/")
    if head == "ALE":  # ale-py's names of Atari's games
        return unknown + hint(name, known, "`sterling list environments` lists all")
    if slash and not any(name.startswith(f"{head}/") for name in known):
        words = "a log (`sterling data make` makes one) nor an environment"
        return f"there is no {environment}: neither {words} (`sterling list environments`)"
    near, reason = hint(environment, known, "sterling.envs.names() lists all", 3), envpool.missing()
    return unknown + near + (f" ({reason})" if reason else "")


def _knows(backend: str, name: str) -> bool:
    return _registered(name) if backend == "gymnasium" else bool(_module(backend).knows(name))


def _names(backend: str) -> list[str]:
    if backend != "gymnasium":
        return list(_module(backend).names())
    import gymnasium

    return sorted(gymnasium.registry)


def _module(backend: str) -> Any:
    """The file of a backend: it offers ``names()`` and ``knows(name)``, and where its worlds are
    native ones ``make(name)``, a Task and its time limit (0: none)."""
    return importlib.import_module(f"sterling.envs.{backend}")


def _registered(name: str) -> bool:
    """Whether Gymnasium has ``name``, after importing the package that it may begin with."""
    import gymnasium

    package, _, identity = name.rpartition(":")
    if package:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise Mistake(
                f"environment {name}: package {package} cannot be imported: {error}"
            ) from error
    return identity in gymnasium.registry


def _dressed(world: World, stack: int | None) -> World:
    """Frames stacked where asked for, masks in one row, bounded actions brought to [-1, 1]."""
    from sterling.envs.board import is_bounded
    from sterling.envs.choices import MaskedChoices, is_unlike_a_row
    from sterling.envs.frame_stack import FrameStack
    from sterling.envs.wrappers import RescaleAction

    world = world if stack in (None, 1) else FrameStack(world, stack)
    world = MaskedChoices(world) if is_unlike_a_row(world.spec) else world
    return RescaleAction(world) if is_bounded(world.spec.action) else world


def _pool(
    name: str, copies: dict[str, Any], purpose: str, stack: int | None, options: dict[str, Any]
) -> World:
    """A world of EnvPool, with what belongs around an Atari game."""
    from sterling.envs import envpool
    from sterling.envs.wrappers import ClipReward

    atari = envpool.is_atari(name)
    if atari and "stack_num" in options:
        raise Mistake(f"frames of {name} are stacked by Sterling; use stack={options['stack_num']}")
    if "num_threads" in options:
        check_whole("num_threads", options["num_threads"], 0)  # EnvPool would abort the process
    clip = envpool.teaches(purpose) and envpool.is_clipped(name, options)
    if atari:  # EnvPool's own clipping would reach the scores
        options = {**ATARI, "stack_num": 1, **options, "reward_clip": False}
    world: World = envpool.Pool(name, **copies, purpose=purpose, **options)
    world = _dressed(world, ATARI_STACK if atari and stack is None else stack)
    return ClipReward(world) if clip else world


def _compiled(
    backend: str, name: str, copies: dict[str, Any], how: dict[str, Any], options: dict[str, Any]
) -> World:
    """A world that is a JAX program; ``how``: its strategy and purpose."""
    from sterling.envs.levels import options_of
    from sterling.envs.traced import Traced

    if backend == "gymnax":
        from sterling.envs import gymnax

        return gymnax.make(name, **copies, strategy=how["strategy"], **options)
    task, limit = native(backend, name)
    check_options(name, options, ["max_episode_steps", *options_of(task)])
    limit = options.get("max_episode_steps", limit)
    return Traced(task, **copies, limit=limit, **how, levels=options.get("levels"))


def native(backend: str, name: str) -> tuple[Any, int]:
    """A native world's Task and its time limit (0: none)."""
    made: tuple[Any, int] = _module(backend).make(name)
    return made


def _registered_world(
    name: str, copies: dict[str, Any], purpose: str, options: dict[str, Any]
) -> World:
    """A world of Gymnasium's registry, stepped in processes."""
    import gymnasium

    from sterling.envs import envpool
    from sterling.envs.gymnasium import Host, registered

    if reason := envpool.missing():
        warnings.warn(f"{reason}: {name} is stepped from Python, which is slower", stacklevel=4)
    spec = gymnasium.spec(name.rpartition(":")[2])  # workers do not know what is registered here
    own = {key: value for key, value in options.items() if key not in HOST_OPTIONS}
    check_arguments(name, spec, own, HOST_OPTIONS)
    factory = functools.partial(registered, spec, **own)
    rest = {key: value for key, value in options.items() if key in HOST_OPTIONS}
    return Host(factory, **copies, purpose=purpose, name=name, **rest)
