"""The review of an environment, given by a name, a reference or an object."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from sterling.checking.environments.random_play import Trajectory, play_randomly, unwrap_world
from sterling.checking.environments.reviewed_environment import (
    ENVS,
    NOT_STEPPED,
    ReviewedEnvironment,
)
from sterling.checking.environments.world_rules import step_checks
from sterling.checking.review_findings import (
    NOT_CHECKED,
    Check,
    CheckFailed,
    Finding,
    NotChecked,
    not_checked,
    run_checks,
)
from sterling.envs.hosted.pettingzoo_parallel import is_pettingzoo_env
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.envs.levels import TaskWithLevels, make_reset
from sterling.envs.registry import find_backend
from sterling.envs.traced_world import Task
from sterling.lookup import user_imports
from sterling.system.shown_values import short_text
from sterling.types import Mistake, World

SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
STEPS, QUICK_STEPS = 400, 120  # of each copy
NOT_GYMNASIUM = "it is a PettingZoo environment; use PettingZoo's own checks (pettingzoo.test)"
ALL_OTHERS = "observations, rewards, ends, seeds and saved states"
ENDS_ITS_PROCESS = re.compile("its process (exited|died|stopped)|no answer within")
HOSTED = ("factory", "gymnasium", "pettingzoo")  # built and seeded by worker processes


def check_environment(
    environment: Any, options: dict[str, Any] | None = None, *, quick: bool = False
) -> Iterator[Finding]:
    """Yield the findings of an environment's review; ``options`` as for training. Raises Mistake if
    it is no environment, or has other options."""
    kind, found = find_backend(environment)
    loaded = user_imports.load(found) if isinstance(found, str) and ":" in found else found
    reviewed = ReviewedEnvironment(environment, options or {}, kind)
    try:
        world = reviewed.world()
        world.close()
    except Exception as error:
        if isinstance(error, Mistake) and error.__cause__ is None:  # not raised by its own code
            raise
        built = "it can be built, reset and stepped once", partial(_fail_to_build, error), loaded
        yield from run_checks(iter([built, *_gymnasium_checks(reviewed, loaded)]))
        yield Finding(ALL_OTHERS, NOT_CHECKED, "it cannot be built")
        return
    steps = QUICK_STEPS if quick else STEPS
    yield from run_checks(_environment_checks(reviewed, world, loaded, steps))


def _environment_checks(
    reviewed: ReviewedEnvironment, world: World, loaded: Any, steps: int
) -> Iterator[Check]:
    """Yield all checks; those that need what cannot be had say that they are not made."""
    yield "the spaces are supported", lambda: _check_spaces(world), loaded
    task = getattr(unwrap_world(world), "task", None)
    code = loaded if task is None else type(task)
    trajectory = None
    with contextlib.suppress(NotChecked):
        trajectory = reviewed.play(steps)
    yield "it can be reset and stepped", partial(_describe_play, reviewed, trajectory), code
    count = 0 if trajectory is None else len(trajectory.reward)
    checks = _checks_of_play(reviewed, world, (task, code), trajectory, count)
    if trajectory is None:
        checks = ((what, partial(not_checked, NOT_STEPPED), own) for what, _, own in checks)
    yield from checks
    yield from _gymnasium_checks(reviewed, loaded)


def _checks_of_play(
    reviewed: ReviewedEnvironment,
    world: World,
    task_and_code: tuple[Any, Any],
    trajectory: Any,
    steps: int,
) -> Iterator[Check]:
    """Yield the checks that need a played trajectory."""
    task, code = task_and_code
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


def _describe_play(reviewed: ReviewedEnvironment, trajectory: Trajectory | None) -> str:
    """Return how many steps were played and how fast; CheckFailed if it raised."""
    count = 0 if trajectory is None else len(trajectory.reward)
    if reviewed.fault:
        where = f" (after {count} steps of {2 * ENVS} copies)" if count else ""
        raise CheckFailed(
            f"it fails: {reviewed.fault}{where}", "fix it; the checks below are made on the steps "
            "before" if count else "fix it"
        )  # fmt: skip
    assert trajectory is not None
    rate = f", {trajectory.rate:,.0f} steps/s" if trajectory.rate else ""
    return f"{count} steps of {2 * ENVS} copies{rate}"


def _gymnasium_checks(reviewed: ReviewedEnvironment, loaded: Any) -> Iterator[Check]:
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


def _fail_to_build(error: Exception) -> str:
    if isinstance(error, (Mistake, WorldFailed)):  # one line that explains it
        raise CheckFailed(str(error))
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

    if ENDS_ITS_PROCESS.search(reviewed.fault):
        raise NotChecked("it ends or blocks its process, and they run in this one")
    if reviewed.kind == "pettingzoo":
        raise NotChecked(NOT_GYMNASIUM)
    built = gymnasium.make(loaded) if isinstance(loaded, str) else loaded()
    if isinstance(built, Task):
        raise NotChecked("it is a Task, not a Gymnasium environment")
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
