"""Checks of environment options: unknown names and impossible values."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake

MAX_INT32 = 2**31 - 1  # Sterling counts steps in 32 bits
MAX_SECONDS = 1e9  # sockets need a finite timeout
HOST_OPTIONS = (
    *("workers", "timeout", "max_failures", "channels", "reward_weights", "max_items"),
    "max_edges",
)
RUN_OPTIONS = {  # arguments of ``envs.make`` that the run sets -> what to type instead
    "environment": "Leave it out",
    "purpose": "Leave it out",
    **{name: f"Give the run {name}=... (--{name})" for name in ("seeds", "envs", "strategy")},
}
FINAL = "final"  # option of trials: see envs/trials.py
# the ``max_episode_steps`` that means no limit (None: there is none); for other backends 0
NO_LIMIT = {"envpool": None, "gymnasium": -1}


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise Mistake for the first option that the environment does not have."""
    known = sorted(known)
    for option in given:
        if option not in known:
            near = did_you_mean(option, known, f"it has {', '.join(known)}")
            raise Mistake(f"Environment {environment} has no option {option!r}{near}")


def with_final(environment: Any, options: dict[str, Any], final: bool) -> dict[str, Any]:
    """Return an environment's options; those of trials that do not name ``final`` get it. Runs
    store it as True: those that lack it are older than the option, and continue with False."""
    is_trials = isinstance(environment, str) and environment.startswith("trials:")
    return {FINAL: final, **options} if is_trials else options


def check_gymnasium_options(
    name: str, spec: Any, given: dict[str, Any], ours: Iterable[str]
) -> None:
    """Raise Mistake for an option that neither ``gymnasium.make``, the environment's constructor
    nor Sterling (``ours``) takes."""
    from gymnasium.envs.registration import load_env_creator

    point = spec.entry_point
    if not given or point is None:
        return
    try:
        creator = load_env_creator(point) if isinstance(point, str) else point
        taken = inspect.signature(creator).parameters
    except (ImportError, AttributeError, TypeError, ValueError):
        return  # the constructor itself will complain
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return
    check_options(name, given, [*taken, "max_episode_steps", *ours])


def gymnasium_option_names(name: str) -> set[str] | None:
    """Return the parameters of a registered environment's constructor; None if it takes any."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    point = gymnasium.spec(name.rpartition(":")[2]).entry_point
    try:
        creator = load_env_creator(point) if isinstance(point, str) else point
        taken = inspect.signature(creator).parameters if creator else {}
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return None
    return set(taken)


def check_reserved_names(options: Iterable[str]) -> None:
    """Raise Mistake for an option whose name is an argument of ``envs.make`` that the run sets
    itself."""
    for option in options:
        if option in RUN_OPTIONS:
            raise Mistake(
                f"{option!r} cannot be an option of an environment: the run sets it. "
                f"{RUN_OPTIONS[option]}."
            )


def is_whole_number(value: Any, least: int) -> bool:
    """Whether ``value`` is a whole number of at least ``least`` that fits into 32 bits."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and least <= value <= MAX_INT32


def check_whole_number(name: str, value: Any, least: int, otherwise: str = "") -> None:
    """Raise Mistake for a value that is not a whole number, too small or too large.

    ``otherwise`` ends the message with what else is allowed.
    """
    if not is_whole_number(value, least):
        large = isinstance(value, (int, float)) and value > MAX_INT32
        raise Mistake(
            f"{name}={value!r} is not possible. Give a whole number of at least {least}"
            + f" and at most {MAX_INT32}" * large
            + f"{otherwise}."
        )


def check_time_limit(backend: str, limit: Any) -> None:
    """Raise Mistake for a ``max_episode_steps`` that the backend does not accept."""
    none = NO_LIMIT.get(backend, 0)
    if none is None:
        check_whole_number("max_episode_steps", limit, 1)
    elif type(limit) is not int or limit != none:
        check_whole_number("max_episode_steps", limit, 1, f", or {none} for no limit")


def check_seconds(name: str, value: Any) -> None:
    """Raise Mistake for a time that is not a positive, finite number of seconds."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not 0 < value <= MAX_SECONDS:
        said = f"Give a number of seconds above 0 and up to {MAX_SECONDS:.0e}."
        raise Mistake(f"{name}={value!r} is not possible. {said}")


def check_bool(name: str, value: Any) -> None:
    """Raise Mistake for a value that is neither true nor false."""
    if value not in (True, False):
        raise Mistake(f"{name}={value!r} is not possible. Give true or false.")
