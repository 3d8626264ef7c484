"""Policies that no exported file can hold, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import partial_eval

from sterling.lookup.user_imports import describe_error
from sterling.types import Mistake


def check_not_drawn(begin: Callable[[Any], Any]) -> None:
    """Raise :class:`Mistake` if ``begin(key)``, the memory before a first step, depends on its key:
    files begin every episode with the same memory."""
    traced = jax.make_jaxpr(begin)(jax.random.key(0)).jaxpr
    _, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    if used[0]:
        raise Mistake(
            "The policy cannot be exported: it draws a memory for each episode, and exported files "
            "begin all with the same one. Serve it: sterling serve RUN"
        )


def fixed_rows_text(error: Exception) -> str:
    """Return why a policy that needs the number of its rows as a plain number is not exported."""
    found = re.search(r" \(\S+:\d+\)$", describe_error(error))
    return (
        "The policy cannot be exported: it needs the number of rows as a plain number"
        f"{found[0] if found else ''}, and exported files answer any number of rows. Write it for "
        "any number, for example with jax.vmap, or serve it: sterling serve RUN"
    )
