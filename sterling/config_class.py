"""The class decorator that makes an algorithm's Config. Algorithms import it from
``sterling.types``, with the rest of their vocabulary."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

import jax

C = TypeVar("C")
CONFIG = "__sterling_config__"  # what :func:`config` leaves in a class that it has made


def config(cls: type[C]) -> type[C]:
    """Make a class an algorithm's Config: a frozen dataclass that is also a tree.

    ``float`` fields are leaves (a population over them is one program); every other field is
    part of the program's structure. A Config may inherit from another algorithm's, as in
    ``class Config(ppo.Config)``: fields are inherited and may be given again, with or without
    their type.
    """
    _annotate_overrides(cls)
    made = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    for field in fields:  # as text, whether or not the file postpones its annotations
        field.type = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    leaves = [field.name for field in fields if field.type == "float"]
    rest = [field.name for field in fields if field.name not in leaves]

    def flatten(config: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(config, name)) for name in leaves]
        return children, tuple(getattr(config, name) for name in rest)

    def unflatten(structure: tuple[Any, ...], children: Iterable[Any]) -> Any:
        config = object.__new__(made)  # inside a program the leaves are arrays, not floats
        for name, value in zip((*leaves, *rest), (*children, *structure), strict=True):
            object.__setattr__(config, name, value)
        return config

    jax.tree_util.register_pytree_with_keys(made, flatten, unflatten)
    setattr(made, CONFIG, True)
    return made


def _annotate_overrides(cls: type) -> None:
    """Give ``lr = 1e-3`` in a subclass the type of the inherited field, which a dataclass would
    otherwise pass over silently."""
    inherited = {
        field.name: field.type
        for base in cls.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    again = {name: kind for name, kind in inherited.items() if name in vars(cls)}
    cls.__annotations__ = {**again, **inspect.get_annotations(cls)}
