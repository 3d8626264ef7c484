"""Options of environments: names that they do not have, and values that cannot be."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from sterling.naming import hint
from sterling.types import Mistake

MOST = 2**31 - 1  # steps are counted in 32 bits
LONGEST = 1e9  # seconds: a socket cannot wait for ever
HOST_OPTIONS = ("workers", "timeout", "max_failures", "channels", "reward_weights")
OF_THE_RUN = {  # what it tells ``envs.make``, and what the user can do about it
    "environment": "leave it out",
    "purpose": "leave it out",
    **{name: f"give the run {name}=... (--{name})" for name in ("seeds", "envs", "strategy")},
}
NO_LIMIT = {"envpool": None, "gymnasium": -1}  # as ``max_episode_steps``; elsewhere 0


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first option that the environment does not have."""
    known = sorted(known)
    for option in given:
        if option not in known:
            near = hint(option, known, f"it has {', '.join(known)}")
            raise Mistake(f"environment {environment} has no option {option!r}{near}")


def check_arguments(name: str, spec: Any, given: dict[str, Any], ours: Iterable[str]) -> None:
    """Refuse options that neither ``gymnasium.make`` nor the environment's constructor takes;
    ``ours`` are taken as well."""
    from gymnasium.envs.registration import load_env_creator

    point = spec.entry_point
    if not given or point is None:
        return
    try:
        creator = load_env_creator(point) if isinstance(point, str) else point
        taken = inspect.signature(creator).parameters
    except (ImportError, AttributeError, TypeError, ValueError):
        return  # what it takes shows when it is built
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return
    check_options(name, given, [*taken, "max_episode_steps", *ours])


def check_free(options: Iterable[str]) -> None:
    """Refuse names that a run itself gives to ``envs.make``."""
    for option in options:
        if option in OF_THE_RUN:
            raise Mistake(
                f"{option!r} cannot be an option of an environment, the run itself has it; "
                + OF_THE_RUN[option]
            )


def is_whole(value: Any, least: int) -> bool:
    """Whether ``value`` is a whole number from ``least`` on that fits into 32 bits."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and least <= value <= MOST


def check_whole(name: str, value: Any, least: int, otherwise: str = "") -> None:
    """Refuse what is not whole, too small or too large; ``otherwise`` says what else there is."""
    if not is_whole(value, least):
        large = isinstance(value, (int, float)) and value > MOST
        raise Mistake(
            f"{name}={value!r} is not possible; "
            f"give a whole number of at least {least}" + f" and at most {MOST}" * large + otherwise
        )


def check_limit(backend: str, limit: Any) -> None:
    """Refuse a ``max_episode_steps`` that the backend cannot keep to."""
    none = NO_LIMIT.get(backend, 0)
    if none is None:
        check_whole("max_episode_steps", limit, 1)
    elif type(limit) is not int or limit != none:
        check_whole("max_episode_steps", limit, 1, f", or {none} for no limit")


def check_seconds(name: str, value: Any) -> None:
    """Refuse what nobody can wait for."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not 0 < value <= LONGEST:
        said = f"give a number of seconds above 0 and up to {LONGEST:.0e}"
        raise Mistake(f"{name}={value!r} is not possible; {said}")


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if value not in (True, False):
        raise Mistake(f"{name}={value!r} is not possible; give true or false")
