"""Execute annotations of shapes in all of Sterling.

jaxtyping prepares every function where it is defined, which takes a process ten seconds; most are
never called. So a function is prepared here when it is called first.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import jaxtyping

prepare = jaxtyping.jaxtyped


def switch_on() -> None:
    """Execute the annotations of what is imported from here on."""
    jaxtyping.jaxtyped = when_called
    jaxtyping.install_import_hook("sterling", "beartype.beartype")


def when_called(*decorated: Any, typechecker: Any = None) -> Any:
    """Stand in for ``jaxtyping.jaxtyped``; classes, and functions without ``typechecker``, are
    prepared at once."""
    if not decorated:
        return functools.partial(when_called, typechecker=typechecker)
    (function,) = decorated
    if typechecker is None or not isinstance(function, types.FunctionType):
        return prepare(function, typechecker=typechecker)
    return _prepared_when_called(function, typechecker)


def _prepared_when_called(function: types.FunctionType, typechecker: Any) -> Callable[..., Any]:
    checked: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not checked:
            checked.append(prepare(function, typechecker=typechecker))
        return checked[0](*args, **kwargs)

    return call
