"""The review of an environment: one that is built from a name, a reference or an object."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from sterling import envs, importing
from sterling.checking.finding import Check, Finding, Unseen, Wrong, carry_out
from sterling.checking.play import Played, play
from sterling.checking.rules import rules
from sterling.envs.board import leaves
from sterling.envs.levels import Levelled, resetting
from sterling.envs.parallel import is_of_agents
from sterling.envs.registry import find
from sterling.types import World

SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
STEPS, QUICK = 400, 120  # of each of the copies
ENVS = 4  # for each of two seeds
NOT_GYMNASIUMS = "it is one of PettingZoo's, which has checks of its own (pettingzoo.test)"
HOSTED = ("factory", "gymnasium", "pettingzoo")  # built and seeded by worker processes


def check_environment(
    environment: Any, options: dict[str, Any] | None = None, *, quick: bool = False
) -> Iterator[Finding]:
    """Yield what a review of an environment finds; ``options`` as for training. Raises Mistake for
    what cannot be built at all."""
    kind, found = find(environment)
    thing = importing.load(found) if isinstance(found, str) and ":" in found else found
    made = Made(environment, options or {}, kind)
    steps = QUICK if quick else STEPS
    yield from carry_out(_checks(made, thing, steps))


class Made:
    """Makes the environment's worlds, and remembers what was played in them."""

    def __init__(self, environment: Any, options: dict[str, Any], kind: str):
        self.environment, self.options, self.kind = environment, options, kind

    def world(self, seeds: tuple[int, ...] = (0, 1)) -> World:
        """A new world of so many seeds."""
        hosted = self.kind in ("factory", "pettingzoo")
        own = {"workers": 1, **self.options} if hosted else self.options
        return envs.make(self.environment, seeds, ENVS, strategy="map", **own)

    def played(self, steps: int, seeds: tuple[int, ...] = (0, 1), key: int = 0) -> Played:
        """What a new world answers to random actions."""
        world = self.world(seeds)
        try:
            played = play(world, seeds, steps, key)
        finally:
            world.close()
        if failures := getattr(innermost(world), "failures", []):
            raise Wrong(f"it fails: {failures[0][1]}", "mend it; a run goes on with a fresh copy")
        return played


def _checks(made: Made, thing: Any, steps: int) -> Iterator[Check]:
    world = made.world()
    world.close()
    yield "the spaces are supported", lambda: _spaces(world), thing
    task = getattr(innermost(world), "task", None)
    code = thing if task is None else type(task)
    try:
        played = made.played(steps)
    except Exception as error:
        yield "it can be reset and stepped", partial(_raise, error), code
        return
    yield "it can be reset and stepped", lambda: f"{steps} steps of {2 * ENVS} copies", code
    yield from rules(world.spec, played, code if task is None else type(task).step)
    yield "the same key gives the same episodes", lambda: _same(made, played, steps), code
    yield from _randomness(made, task, played, steps)
    yield "a seed alone equals the same among several", lambda: _alone(made, played, steps), code
    yield "its state can be saved and restored", lambda: _restored(made, steps), code
    if made.kind in HOSTED:
        yield "Gymnasium's own checks", lambda: _gymnasium(made, thing), thing


def _spaces(world: World) -> str:
    for name, space in (("observations", world.spec.obs), ("actions", world.spec.action)):
        for path, leaf in leaves(space):
            part = f"{name}{list(path) if path else ''}"
            if not isinstance(leaf, SUPPORTED):
                raise Wrong(f"{part} are {leaf}", "use Box, Discrete, MultiDiscrete or MultiBinary")
            if isinstance(leaf, spaces.Box) and (np.isnan(leaf.low) | np.isnan(leaf.high)).any():
                raise Wrong(f"bounds of {part} are NaN", "give numbers or infinity as bounds")
    return f"observations {world.spec.obs}, actions {world.spec.action}"


def innermost(world: Any) -> Any:
    """Return the world inside all wrappers."""
    while hasattr(world, "world"):
        world = world.world
    return world


def _same(made: Made, played: Played, steps: int) -> str:
    again = made.played(steps)
    part = played.difference(again)
    if part:
        raise Wrong(
            f"{part} differ between two runs of the same seeds and actions",
            "draw every random number from the key (of Gymnasium: from self.np_random), and keep "
            "nothing outside the state",
        )
    return ""


def _randomness(made: Made, task: Any, played: Played, steps: int) -> Iterator[Check]:
    """Whether what is drawn is drawn from the key."""

    def alike(other: Played) -> str:
        same = played.difference(other) is None
        return "note: nothing is random, all episodes are alike" if same else ""

    def from_key() -> str:
        for function, given in _traceable(made, task):
            _from_key(function, given)
        return alike(made.played(steps, key=1))

    if made.kind in HOSTED:
        count = min(steps, QUICK)
        yield "other seeds, other episodes", lambda: alike(made.played(count, seeds=(2, 3))), None
    else:
        begins = task and getattr(type(task), "begin" if isinstance(task, Levelled) else "reset")
        yield "random numbers come from the key", from_key, begins


def _traceable(made: Made, task: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The functions that take a key, with arguments of which the key is the last."""
    key = jax.random.key(0)
    if task is not None:
        reset = resetting(task)
        state, _ = jax.eval_shape(reset, key)
        yield reset, (key,)
        yield task.step, (state, jax.numpy.asarray(task.action.sample()), key)
        return
    world = made.world()
    if world.traced:
        yield world.reset, (jax.random.split(key),)
    world.close()


def _from_key(function: Any, given: tuple[Any, ...]) -> None:
    """Raise :class:`Wrong` where a function draws random numbers although it ignores its key."""
    traced, name = jax.make_jaxpr(function)(*given), function.__name__
    key = traced.jaxpr.invars[-1]
    used = any(key is each for equation in traced.jaxpr.eqns for each in equation.invars)
    if not used and "random_bits" in str(traced):
        raise Wrong(
            f"{name} draws random numbers but ignores its key: every episode draws the same ones",
            f"draw from the key that {name} is given (jax.random.split, if several are needed)",
        )


def _raise(error: Exception) -> str:
    raise error


def _alone(made: Made, played: Played, steps: int) -> str:
    alone = made.played(steps, seeds=(1,))
    part = played.of_seed(1).difference(alone)
    if part:
        raise Wrong(
            f"{part} of seed 1 differ from those of seed 1 alone",
            "let nothing of one seed's copies depend on the others: no shared random state",
        )
    return ""


def _restored(made: Made, steps: int) -> str:
    world = made.world()
    try:
        if not world.exact:
            raise Unseen("such a world is not exact: a resumed run begins fresh episodes")
        whole = play(world, (0, 1), steps, 0)
        broken = play(world, (0, 1), steps, 0, save_at=steps // 2)
    finally:
        world.close()
    part = whole.difference(broken)
    if part:
        raise Wrong(f"{part} differ after the state was written as arrays and read back",
                    "keep everything that changes in the state, as arrays")  # fmt: skip
    return "bit for bit"


def _gymnasium(made: Made, thing: Any) -> str:
    from gymnasium.utils.env_checker import check_env

    if made.kind == "pettingzoo":
        raise Unseen(NOT_GYMNASIUMS)
    built = gymnasium.make(thing) if isinstance(thing, str) else thing()
    if is_of_agents(built):
        raise Unseen(NOT_GYMNASIUMS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(getattr(built, "unwrapped", built), skip_render_check=True)
        except Exception as error:
            raise Wrong(f"gymnasium.utils.env_checker: {importing.explain(error)}") from error
        finally:
            built.close()
    said = [str(each.message).replace("\x1b[33mWARN: ", "").replace("\x1b[0m", "")
            for each in caught]  # fmt: skip
    return f"it warns: {said[0][:120]}" if said else ""
