"""Data augmentations by name: their words, and what each needs of a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium import spaces

from sterling.equations.picture_augmentation import (
    Crop,
    Cutout,
    PictureChange,
    Shift,
    Translate,
    on_pictures,
)
from sterling.equations.transition_augmentation import (
    NO_SIGN_MESSAGE,
    Augmentation,
    Gaussian,
    Mixup,
    Scaling,
    Symmetry,
    Uniform,
    reflection,
)
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake, Spec

PICTURES: dict[str, tuple[str, Callable[..., PictureChange]]] = {
    "shift": ("PIXELS", Shift),
    "subpixel-shift": ("PIXELS", partial(Shift, subpixel=True)),
    "translate": ("PIXELS", Translate),
    "crop": ("PIXELS", Crop),
    "cutout": ("LEAST,MOST", Cutout),
}
AUGMENTATIONS: dict[str, tuple[str, Callable[..., Augmentation | PictureChange]]] = {
    "gaussian": ("SIGMA", Gaussian),
    "uniform": ("ALPHA", Uniform),
    "scaling": ("LOW,HIGH", Scaling),
    "mixup": ("ALPHA", Mixup),
    "reflection": ("SIGNS/SIGNS, as -++-/-", reflection),
    "permutation": ("ORDER/ORDER, as 1,0/1,0; -1 is entry 1 with its sign changed", Symmetry),
    **PICTURES,
}


def parse_augmentation(text: str) -> Augmentation | PictureChange:
    """Parse an augmentation, given by name and numbers: ``gaussian``, ``gaussian:0.001``,
    ``scaling:0.8,1.2``, ``reflection:-++-/-`` (observation/action), ``permutation:-0,-1/1,0``,
    ``shift:4`` (of pictures). :func:`fit_augmentation` makes it fit a problem.

    Raises Mistake for unknown names (with the nearest known one) and wrong numbers.
    """
    name, _, words = text.partition(":")
    if name not in AUGMENTATIONS:
        known = f"use one of {', '.join(AUGMENTATIONS)}"
        raise Mistake(f"Unknown augmentation {name!r}{did_you_mean(name, AUGMENTATIONS, known)}")
    form, make = AUGMENTATIONS[name]
    try:
        if name == "reflection":
            signs = [tuple({"+": 1, "-": -1}[sign] for sign in x) for x in words.split("/")]
            return make(*signs)
        if name == "permutation":
            return make(*(x for part in words.split("/") for x in _parse_signed_order(part)))
        number = int if name in PICTURES else float
        return make(*(number(word) for word in words.split(",") if words))
    except (ValueError, KeyError, TypeError) as error:
        raise Mistake(f"Cannot read augmentation {text!r}. Write {name}:{form}") from error


def fit_augmentation(text: str, spec: Spec) -> Augmentation:
    """Return the augmentation that ``text`` names, for a problem's observations. Raises Mistake if
    it does not fit them: changes of pictures need one, and others vectors of floats."""
    change: Any = parse_augmentation(text)
    if text.partition(":")[0] in PICTURES:
        return on_pictures(change, spec, text)
    check_augmentation(change, spec)
    return change


def check_augmentation(change: Augmentation, spec: Spec) -> None:
    """Raise Mistake if observations are not vectors of floats, or a symmetry's sizes do not fit."""
    obs: Any = spec.obs
    action: Any = spec.action
    if not isinstance(obs, spaces.Box) or len(obs.shape) != 1 or obs.dtype.kind != "f":
        raise Mistake(f"Augmentation needs observations that are vectors of floats, not {obs}.")
    if not isinstance(change, Symmetry):
        return
    single = isinstance(action, spaces.Discrete)
    size = int(action.n) if single else math.prod(action.shape or (0,))
    for asked, there, what in (
        (change.obs_order, obs.shape[0], "observations"),
        (change.obs_sign, obs.shape[0], "observations"),
        (change.action_order, size, "choices" if single else "actions"),
        (change.action_sign, size, "choices" if single else "actions"),
    ):
        if asked and len(asked) != there:
            raise Mistake(f"The symmetry has {len(asked)} {what}, the environment has {there}.")
    if change.action_sign and not isinstance(action, spaces.Box):
        raise Mistake(NO_SIGN_MESSAGE)


def _parse_signed_order(words: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse "-0,1" to indices (0, 1) and signs (-1, 1); no signs if all are positive."""
    each = [word.strip() for word in words.split(",") if words]
    sign = tuple(-1 if word.startswith("-") else 1 for word in each)
    order = tuple(int(word.lstrip("+-")) for word in each)
    return order, sign if -1 in sign else ()
