"""The class decorator that makes an algorithm's Config. Algorithms import it from
``sterling.types``, with the rest of their vocabulary."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import jax

from sterling.field_types import OneOf, Within, plain

C = TypeVar("C")
CONFIG = "__sterling_config__"  # what :func:`config` leaves in a class: the rules of its fields
Rule = Within | OneOf


def config(cls: type[C]) -> type[C]:
    """Make a class an algorithm's Config: a frozen dataclass that is also a tree.

    ``float`` fields are leaves (a population over them is one program); every other field is
    part of the program's structure. What values a field may have is said by its type (see
    ``sterling/field_types.py``). A Config may inherit from another algorithm's, as in
    ``class Config(ppo.Config)``: fields are inherited and may be given again, with or without
    their type; their rules stay, unless the new type has one of its own.
    """
    rules = _annotate(cls)
    made = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
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
    setattr(made, CONFIG, rules)
    return made


def rules_of(cls: type) -> dict[str, Rule]:
    """Return what a Config's fields may be, by name; fields without a rule are left out."""
    return dict(getattr(cls, CONFIG, {}))


def _annotate(cls: type) -> dict[str, Rule]:
    """Write every field's plain type as its annotation, that of an inherited one that is changed
    without a type as well, which a dataclass would pass over silently; return all fields' rules."""
    inherited = {
        field.name: str(field.type)
        for base in cls.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    rules = {name: rule for base in reversed(cls.__mro__[1:])
             for name, rule in vars(base).get(CONFIG, {}).items()}  # fmt: skip
    again = {name: kind for name, kind in inherited.items() if name in vars(cls)}
    written = inspect.get_annotations(cls)
    known = {name: _evaluated(cls, kind) for name, kind in written.items()}
    rules |= {name: rule for name, kind in known.items() if (rule := _rule(kind)) is not None}
    cls.__annotations__ = {**again, **{name: _text(known[name], kind)
                                       for name, kind in written.items()}}  # fmt: skip
    return rules


def _evaluated(cls: type, kind: Any) -> Any:
    """An annotation as an object; as the text that it is where it names what is not there."""
    if not isinstance(kind, str):
        return kind
    try:
        return eval(kind, dict(vars(sys.modules[cls.__module__])))
    except Exception:  # as of a class that is made inside a function
        return kind


def _parts(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union; else the type itself."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def _rule(kind: Any) -> Rule | None:
    found = [
        each
        for part in _parts(kind)
        if typing.get_origin(part) is Annotated
        for each in part.__metadata__
        if isinstance(each, (Within, OneOf))
    ]
    return found[0] if found else None


def _text(kind: Any, written: Any) -> str:
    """A type as text: ``float | None``, whether or not its file postpones its annotations."""
    parts = [part.__origin__ if typing.get_origin(part) is Annotated else part
             for part in _parts(kind)]  # fmt: skip
    if all(isinstance(part, type) and not typing.get_args(part) for part in parts):
        return " | ".join("None" if part is type(None) else part.__name__ for part in parts)
    return plain(written if isinstance(written, str) else str(written))
