"""The class decorator ``config``, which makes an algorithm's Config. Algorithms import it from
``sterling.types``."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import jax

from sterling.field_types import LayerSizes, OneOf, Within, plain_type

C = TypeVar("C")
RULES_ATTRIBUTE = (
    "__sterling_config__"  # class attribute set by :func:`config`: the rules of its fields
)
Rule = Within | OneOf | LayerSizes
MORE_LEAVES = "__sterling_leaves__"  # instance attribute: optional fields that are leaves too


def config(cls: type[C]) -> type[C]:
    """Make a class an algorithm's Config: a frozen dataclass that is also a pytree.

    ``float`` fields are leaves, so one compiled program runs a population of values; every other
    field is part of the tree's structure. A field's type says which values it may have (see
    ``sterling/field_types.py``). A Config may inherit from another algorithm's, as in
    ``class Config(ppo.Config)``: a subclass may give a field a new default, with or without its
    type; the field's rule stays unless the new type has a rule.
    """
    rules = _set_plain_annotations(cls)
    made = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    leaves = [field.name for field in fields if field.type == "float"]
    rest = [field.name for field in fields if field.name not in leaves]

    def flatten(config: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        more = config.__dict__.get(MORE_LEAVES, ())
        names = (*leaves, *more)
        children = [(jax.tree_util.GetAttrKey(name), getattr(config, name)) for name in names]
        return children, (more, *(getattr(config, name) for name in rest if name not in more))

    def unflatten(structure: tuple[Any, ...], children: Iterable[Any]) -> Any:
        config = object.__new__(made)  # inside a program the leaves are arrays, not floats
        more, *others = structure
        names = (*leaves, *more, *(name for name in rest if name not in more))
        for name, value in zip(names, (*children, *others), strict=True):
            object.__setattr__(config, name, value)
        if more:
            object.__setattr__(config, MORE_LEAVES, more)
        return config

    jax.tree_util.register_pytree_with_keys(made, flatten, unflatten)
    setattr(made, RULES_ATTRIBUTE, rules)
    return made


def replace_leaves(config: C, values: dict[str, Any]) -> C:
    """Return the Config with new values of float fields. A field of type ``float | None`` becomes a
    leaf of the tree, as ``float`` fields are: its value may then change inside a program."""
    optional = {field.name for field in dataclasses.fields(config)  # type: ignore[arg-type]
                if field.type == "float | None"}  # fmt: skip
    made = object.__new__(type(config))
    made.__dict__.update(config.__dict__ | values)
    more = {*config.__dict__.get(MORE_LEAVES, ()), *(optional & set(values))}
    if more:
        made.__dict__[MORE_LEAVES] = tuple(sorted(more))
    return made


def field_rules(cls: type) -> dict[str, Rule]:
    """Return the rules of a Config's fields by name; fields without a rule are left out."""
    return dict(getattr(cls, RULES_ATTRIBUTE, {}))


def _set_plain_annotations(cls: type) -> dict[str, Rule]:
    """Replace every field's annotation by its plain type, and return the rules of all fields.

    An inherited field that gets a new default without a type is annotated too: a dataclass would
    silently ignore it."""
    inherited = {
        field.name: str(field.type)
        for base in cls.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    rules = {name: rule for base in reversed(cls.__mro__[1:])
             for name, rule in vars(base).get(RULES_ATTRIBUTE, {}).items()}  # fmt: skip
    again = {name: kind for name, kind in inherited.items() if name in vars(cls)}
    written = inspect.get_annotations(cls)
    known = {name: _evaluate_annotation(cls, kind) for name, kind in written.items()}
    rules |= {name: rule for name, kind in known.items() if (rule := _find_rule(kind)) is not None}
    cls.__annotations__ = {**again, **{name: _type_text(known[name], kind)
                                       for name, kind in written.items()}}  # fmt: skip
    return rules


def _evaluate_annotation(cls: type, kind: Any) -> Any:
    """Return an annotation's object; the text itself if it contains an unknown name."""
    if not isinstance(kind, str):
        return kind
    try:
        return eval(kind, dict(vars(sys.modules[cls.__module__])))
    except Exception:  # for instance in a class that is defined inside a function
        return kind


def _union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; for any other type, the type itself."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def _find_rule(kind: Any) -> Rule | None:
    found = [
        each
        for part in _union_members(kind)
        if typing.get_origin(part) is Annotated
        for each in part.__metadata__
        if isinstance(each, Rule)
    ]
    return found[0] if found else None


def _type_text(kind: Any, written: Any) -> str:
    """Return a type as text, ``float | None``, with or without postponed annotations."""
    parts = [part.__origin__ if typing.get_origin(part) is Annotated else part
             for part in _union_members(kind)]  # fmt: skip
    if all(isinstance(part, type) and not typing.get_args(part) for part in parts):
        return " | ".join("None" if part is type(None) else part.__name__ for part in parts)
    return plain_type(written if isinstance(written, str) else str(written))
