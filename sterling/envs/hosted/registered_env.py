"""Build environments that are registered with Gymnasium.

Workers import this file, so it imports nothing slow.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium

from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value


def env_builder(factory: Any, name: str) -> Callable[[], Any]:
    """Return the factory itself, or one that makes the environment registered under an id."""
    if not isinstance(factory, str):
        if not callable(factory):
            kind, built = type(factory).__name__, isinstance(factory, gymnasium.Env)
            remedy = f" Write `lambda: {kind}(...)`." if built else ""
            said = "is neither the id of an environment nor a function that builds one."
            raise Mistake(f"{shown_value(factory)} {said}{remedy}")
        return factory
    module, _, identity = factory.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        # the spec is sent to workers, which do not know what is registered here
        spec = gymnasium.spec(identity)
    except (gymnasium.error.Error, ImportError) as error:
        raise Mistake(f"Environment {name}: {error}") from error
    return functools.partial(make_registered_env, spec)


def make_registered_env(spec: Any, /, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make a registered environment without Gymnasium's checker (``HostWorld`` has its own) and
    without the warnings that packages give while they build it, such as missing screens or lowered
    precision. Some build their spaces, and so warn, whenever they are asked for them."""
    warnings.filterwarnings("ignore", ".*precision lowered by casting")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(spec, disable_env_checker=True, **options)
