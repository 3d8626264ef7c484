"""The review of an environment, given by a name, a reference or an object."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from sterling import envs
from sterling.checking.random_play import Trajectory, play_randomly
from sterling.checking.review_findings import Check, CheckFailed, Finding, NotChecked, run_checks
from sterling.checking.world_rules import step_checks
from sterling.envs.hosted.pettingzoo_parallel import is_pettingzoo_env
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.envs.levels import TaskWithLevels, make_reset
from sterling.envs.registry import find_backend
from sterling.lookup import user_imports
from sterling.system.shown_values import short_text
from sterling.types import World

SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
STEPS, QUICK_STEPS = 400, 120  # of each copy
ENVS = 4  # for each of two seeds
NOT_GYMNASIUM = "it is a PettingZoo environment; use PettingZoo's own checks (pettingzoo.test)"
HOSTED = ("factory", "gymnasium", "pettingzoo")  # built and seeded by worker processes


def check_environment(
    environment: Any, options: dict[str, Any] | None = None, *, quick: bool = False
) -> Iterator[Finding]:
    """Yield the findings of an environment's review; ``options`` as for training. Raises Mistake if
    it cannot be built."""
    kind, found = find_backend(environment)
    loaded = user_imports.load(found) if isinstance(found, str) and ":" in found else found
    reviewed = ReviewedEnvironment(environment, options or {}, kind)
    steps = QUICK_STEPS if quick else STEPS
    yield from run_checks(_environment_checks(reviewed, loaded, steps))


class ReviewedEnvironment:
    """Makes worlds of the environment and plays random actions in them."""

    def __init__(self, environment: Any, options: dict[str, Any], kind: str):
        self.environment, self.options, self.kind = environment, options, kind

    def world(self, seeds: tuple[int, ...] = (0, 1)) -> World:
        """Make a new world with these seeds."""
        hosted = self.kind in ("factory", "pettingzoo")
        own = {"workers": 1, **self.options} if hosted else self.options
        return envs.make(self.environment, seeds, ENVS, strategy="map", **own)

    def play(self, steps: int, seeds: tuple[int, ...] = (0, 1), key: int = 0) -> Trajectory:
        """Play random actions in a new world and return what it answered."""
        world = self.world(seeds)
        try:
            trajectory = play_randomly(world, seeds, steps, key)
        finally:
            world.close()
        if failures := getattr(unwrap_world(world), "failures", []):
            raise CheckFailed(
                f"it fails: {failures[0][1]}", "fix it; a run continues with a new copy"
            )
        return trajectory


def _environment_checks(reviewed: ReviewedEnvironment, loaded: Any, steps: int) -> Iterator[Check]:
    world = reviewed.world()
    world.close()
    yield "the spaces are supported", lambda: _check_spaces(world), loaded
    task = getattr(unwrap_world(world), "task", None)
    code = loaded if task is None else type(task)
    try:
        trajectory = reviewed.play(steps)
    except Exception as error:
        yield "it can be reset and stepped", partial(_raise, error), code
        return
    yield "it can be reset and stepped", lambda: f"{steps} steps of {2 * ENVS} copies", code
    yield from step_checks(world.spec, trajectory, code if task is None else type(task).step)
    yield (
        "the same key gives the same episodes",
        lambda: _check_repeatable(reviewed, trajectory, steps),
        code,
    )
    yield from _randomness_checks(reviewed, task, trajectory, steps)
    yield (
        "a seed alone equals the same seed among several",
        lambda: _check_seed_alone(reviewed, trajectory, steps),
        code,
    )
    yield "its state can be saved and restored", lambda: _check_restored(reviewed, steps), code
    if reviewed.kind in HOSTED:
        yield "Gymnasium's own checks", lambda: _run_gymnasium_checker(reviewed, loaded), loaded


def _check_spaces(world: World) -> str:
    for name, space in (("observations", world.spec.obs), ("actions", world.spec.action)):
        for path, leaf in space_leaves(space):
            part = f"{name}{list(path) if path else ''}"
            if not isinstance(leaf, SUPPORTED):
                raise CheckFailed(
                    f"{part} are {leaf}", "use Box, Discrete, MultiDiscrete or MultiBinary"
                )
            if isinstance(leaf, spaces.Box) and (np.isnan(leaf.low) | np.isnan(leaf.high)).any():
                raise CheckFailed(f"bounds of {part} are NaN", "give numbers or infinity as bounds")
    return f"observations {world.spec.obs}, actions {world.spec.action}"


def unwrap_world(world: Any) -> Any:
    """Return the world inside all wrappers."""
    while hasattr(world, "world"):
        world = world.world
    return world


def _check_repeatable(reviewed: ReviewedEnvironment, trajectory: Trajectory, steps: int) -> str:
    again = reviewed.play(steps)
    part = trajectory.difference(again)
    if part:
        raise CheckFailed(
            f"{part} differ between two runs with the same seeds and actions",
            "draw every random number from the key (in Gymnasium: from self.np_random), and keep "
            "nothing outside the state",
        )
    return ""


def _randomness_checks(
    reviewed: ReviewedEnvironment, task: Any, trajectory: Trajectory, steps: int
) -> Iterator[Check]:
    """Yield the check that random numbers come from the key or, for hosted environments, from the
    seed."""

    def note_if_equal(other: Trajectory) -> str:
        same = trajectory.difference(other) is None
        return "note: nothing is random, all episodes are equal" if same else ""

    def check_functions() -> str:
        for function, given in _functions_of_key(reviewed, task):
            _check_uses_key(function, given)
        return note_if_equal(reviewed.play(steps, key=1))

    if reviewed.kind in HOSTED:
        count = min(steps, QUICK_STEPS)
        yield (
            "different seeds give different episodes",
            lambda: note_if_equal(reviewed.play(count, seeds=(2, 3))),
            None,
        )
    else:
        begins = task and getattr(
            type(task), "begin" if isinstance(task, TaskWithLevels) else "reset"
        )
        yield "random numbers come from the key", check_functions, begins


def _functions_of_key(
    reviewed: ReviewedEnvironment, task: Any
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the functions that take a key as their last argument, with arguments to call them."""
    key = jax.random.key(0)
    if task is not None:
        reset = make_reset(task)
        state, _ = jax.eval_shape(reset, key)
        yield reset, (key,)
        yield task.step, (state, jax.tree.map(jax.numpy.asarray, task.action.sample()), key)
        return
    world = reviewed.world()
    if world.traced:
        yield world.reset, (jax.random.split(key),)
    world.close()


def _check_uses_key(function: Any, given: tuple[Any, ...]) -> None:
    """Raise :class:`CheckFailed` if a function draws random numbers but ignores its key."""
    traced, name = jax.make_jaxpr(function)(*given), function.__name__
    key = traced.jaxpr.invars[-1]
    used = any(key is each for equation in traced.jaxpr.eqns for each in equation.invars)
    if not used and "random_bits" in str(traced):
        raise CheckFailed(
            f"{name} draws random numbers but ignores its key: all episodes draw the same ones",
            f"draw from the key of {name} (jax.random.split, if you need several)",
        )


def _raise(error: Exception) -> str:
    raise error


def _check_seed_alone(reviewed: ReviewedEnvironment, trajectory: Trajectory, steps: int) -> str:
    alone = reviewed.play(steps, seeds=(1,))
    part = trajectory.select_seed(1).difference(alone)
    if part:
        raise CheckFailed(
            f"{part} of seed 1 differ when seed 0 runs beside it",
            "make the copies of each seed independent of the others: no shared random state",
        )
    return ""


def _check_restored(reviewed: ReviewedEnvironment, steps: int) -> str:
    world = reviewed.world()
    try:
        if not world.exact:
            raise NotChecked(
                "its state cannot be saved (exact is False); a resumed run begins new episodes"
            )
        whole = play_randomly(world, (0, 1), steps, 0)
        restored = play_randomly(world, (0, 1), steps, 0, save_at=steps // 2)
    finally:
        world.close()
    part = whole.difference(restored)
    if part:
        raise CheckFailed(
            f"{part} differ after the state was saved as arrays and restored",
            "keep everything that changes in the state, as arrays",
        )
    return "bit for bit"


def _run_gymnasium_checker(reviewed: ReviewedEnvironment, loaded: Any) -> str:
    from gymnasium.utils.env_checker import check_env

    if reviewed.kind == "pettingzoo":
        raise NotChecked(NOT_GYMNASIUM)
    built = gymnasium.make(loaded) if isinstance(loaded, str) else loaded()
    if is_pettingzoo_env(built):
        raise NotChecked(NOT_GYMNASIUM)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(getattr(built, "unwrapped", built), skip_render_check=True)
        except Exception as error:
            raise CheckFailed(
                f"gymnasium.utils.env_checker: {user_imports.describe_error(error)}"
            ) from error
        finally:
            built.close()
    said = [
        str(each.message).replace("\x1b[33mWARN: ", "").replace("\x1b[0m", "") for each in caught
    ]
    return f"it warns: {short_text(said[0])}" if said else ""
