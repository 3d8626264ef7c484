"""Changes of transitions that leave them true, or nearly so: noise, scaling, mix-up, symmetries.

S4RL (Sinha 2021, "S4RL: surprisingly simple self-supervision for offline reinforcement learning",
arXiv:2103.06326, section 4.1), with one draw for a row's two observations:

    gaussian   s + e, s' + e                    e ~ N(0, sigma^2) for each number
    uniform    s + e, s' + e                    e ~ U(-alpha, alpha) for each number
    scaling    s c, s' c                        c ~ U(low, high), one for a row
    mixup      lambda s + (1 - lambda) s', s'   lambda ~ Beta(alpha, alpha), one for a row

Symmetries of the dynamics (Corrado 2024, "Understanding when dynamics-invariant data augmentations
benefit model-free reinforcement learning updates", arXiv:2310.17786): if (s, a, s') can happen, so
can (g s, h a, g s'). Whether that is so, and whether the reward stays, is for the user to know.

A change is called with a record, ``(..., n)`` vectors of floats, and one key; it raises Mistake for
other observations. Rewards, discounts, ``last`` and ``mask`` stay as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key, Shaped

from sterling.naming import hint
from sterling.types import Action, Mistake, Record, Spec

NO_SIGN = "choices have no sign; say by an order which becomes which"
Change = Callable[[Record, Key[Array, ""]], Record]


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Normal noise, in the observation's units; the paper's deviation is 3e-4."""

    sigma: float = 3e-4

    def __post_init__(self) -> None:
        if not 0.0 <= self.sigma < math.inf:
            raise Mistake(f"a deviation is a number of at least 0; got {self.sigma}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """The same noise on both observations."""
        obs = vectors(record)
        return _moved(record, self.sigma * jax.random.normal(key, obs.shape, obs.dtype))


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Noise between -alpha and alpha, in the observation's units; the paper's is 3e-4."""

    alpha: float = 3e-4

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha < math.inf:
            raise Mistake(f"noise has a width of at least 0; got {self.alpha}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """The same noise on both observations."""
        obs = vectors(record)
        noise = jax.random.uniform(key, obs.shape, obs.dtype, -self.alpha, self.alpha)
        return _moved(record, noise)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Both observations times one number between ``low`` and ``high``; the paper's lie in
    [0.6, 0.8] and [1.2, 1.4]."""

    low: float = 0.8
    high: float = 1.2

    def __post_init__(self) -> None:
        if not -math.inf < self.low <= self.high < math.inf:
            said = f"got {self.low} and {self.high}"
            raise Mistake(f"factors lie between a number and a larger one; {said}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """One factor for a row."""
        obs = vectors(record)
        factor = jax.random.uniform(key, (*obs.shape[:-1], 1), obs.dtype, self.low, self.high)
        return dataclasses.replace(record, obs=obs * factor, next_obs=record.next_obs * factor)


@dataclasses.dataclass(frozen=True)
class Mixup:
    """The observation moved towards its successor; the paper's alpha is 0.4. The successor stays:
    what follows it is not in the row."""

    alpha: float = 0.4

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < math.inf:
            raise Mistake(f"mixup's alpha is above 0; got {self.alpha}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """One weight for a row."""
        obs = vectors(record)
        weight = jax.random.beta(key, self.alpha, self.alpha, (*obs.shape[:-1], 1), obs.dtype)
        return dataclasses.replace(record, obs=weight * obs + (1.0 - weight) * record.next_obs)


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """Both observations and the action reordered and with other signs:

        (g s)[i] = obs_sign[i] s[obs_order[i]]       h likewise; a choice c becomes action_order[c]

    An empty order or sign leaves that as it is. A ``share`` of the rows is changed, drawn at
    random, the rest stays; of a stretch of several steps all or none. ``extras["next_action"]``
    is changed alike.
    """

    obs_order: tuple[int, ...] = ()
    obs_sign: tuple[int, ...] = ()
    action_order: tuple[int, ...] = ()
    action_sign: tuple[int, ...] = ()
    share: float = 0.5

    def __post_init__(self) -> None:
        for order in (self.obs_order, self.action_order):
            if sorted(order) != list(range(len(order))):
                raise Mistake(f"an order names every place once, from 0; got {order}")
        if not {*self.obs_sign, *self.action_sign} <= {-1, 1}:
            raise Mistake(f"signs are -1 or 1; got {self.obs_sign} and {self.action_sign}")
        if not 0.0 <= self.share <= 1.0:
            raise Mistake(f"the share of rows that are changed lies in [0, 1]; got {self.share}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Rows drawn by ``key`` are changed."""
        vectors(record)
        lead = record.mask.shape[:2]  # updates and rows; a stretch's steps share the draw
        chosen = jax.random.uniform(key, lead) < self.share
        changed = self.changed(record)
        return jax.tree.map(lambda new, old: _where(chosen, new, old), changed, record)

    def changed(self, record: Record) -> Record:
        """Every row changed."""
        extras = dict(record.extras)
        if "next_action" in extras:
            after = self._of_action(extras["next_action"], record)
            extras["next_action"] = _where(record.last, jnp.zeros_like(after), after)
        return dataclasses.replace(
            record,
            obs=_turned(record.obs, self.obs_order, self.obs_sign, "observations"),
            action=self._of_action(record.action, record),
            next_obs=_turned(record.next_obs, self.obs_order, self.obs_sign, "observations"),
            extras=extras,
        )

    def _of_action(self, action: Action, record: Record) -> Action:
        if not (self.action_order or self.action_sign):
            return action
        if not isinstance(action, jax.Array) or action.ndim > record.mask.ndim + 1:
            raise Mistake("symmetries are of actions that are one choice or one vector")
        if action.ndim > record.mask.ndim:
            return _turned(action, self.action_order, self.action_sign, "actions")
        if self.action_sign:
            raise Mistake(NO_SIGN)
        return jnp.asarray(self.action_order, action.dtype)[action]


def reflection(
    obs_sign: Sequence[int], action_sign: Sequence[int] = (), share: float = 0.5
) -> Symmetry:
    """A mirror: numbers with sign -1 change theirs."""
    return Symmetry((), tuple(obs_sign), (), tuple(action_sign), share)


def permutation(
    obs_order: Sequence[int], action_order: Sequence[int] = (), share: float = 0.5
) -> Symmetry:
    """Parts that are alike change places: entry i becomes what entry ``order[i]`` was."""
    return Symmetry(tuple(obs_order), (), tuple(action_order), (), share)


NAMES: dict[str, tuple[str, Callable[..., Change]]] = {
    "gaussian": ("SIGMA", Gaussian),
    "uniform": ("ALPHA", Uniform),
    "scaling": ("LOW,HIGH", Scaling),
    "mixup": ("ALPHA", Mixup),
    "reflection": ("SIGNS/SIGNS, as -++-/-", reflection),
    "permutation": ("ORDER/ORDER, as 1,0/1,0; -1 is entry 1 with its sign changed", Symmetry),
}


def named(text: str) -> Change:
    """A change by its name and numbers: ``gaussian``, ``gaussian:0.001``, ``scaling:0.8,1.2``,
    ``reflection:-++-/-`` (observation, then action), ``permutation:-0,-1/1,0``.

    Raises Mistake for other names (with the nearest right one) and numbers.
    """
    name, _, words = text.partition(":")
    if name not in NAMES:
        known = f"there are {', '.join(NAMES)}"
        raise Mistake(f"there is no change {name!r}{hint(name, NAMES, known)}")
    form, make = NAMES[name]
    try:
        if name == "reflection":
            signs = [tuple({"+": 1, "-": -1}[sign] for sign in x) for x in words.split("/")]
            return make(*signs)
        if name == "permutation":
            return make(*(x for part in words.split("/") for x in _signed(part)))
        return make(*(float(word) for word in words.split(",") if words))
    except (ValueError, KeyError, TypeError) as error:
        raise Mistake(f"{text!r} is not understood; write {name}:{form}") from error


def suits(change: Change, spec: Spec) -> None:
    """Raises Mistake where observations are no vector of floats, or a symmetry has other sizes."""
    obs: Any = spec.obs
    action: Any = spec.action
    if not isinstance(obs, spaces.Box) or len(obs.shape) != 1 or obs.dtype.kind != "f":
        raise Mistake(f"augmentation is for vectors of floats; the observations are {obs}")
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
            raise Mistake(f"the symmetry speaks of {len(asked)} {what} where there are {there}")
    if change.action_sign and not isinstance(action, spaces.Box):
        raise Mistake(NO_SIGN)


def vectors(record: Record) -> Float[Array, "... n"]:
    """The observations; raises Mistake where they are no vectors of floats."""
    obs: Any = record.obs
    single = isinstance(obs, jax.Array) and obs.ndim == record.mask.ndim + 1
    if not (single and jnp.issubdtype(obs.dtype, jnp.floating)):
        raise Mistake("augmentation is for observations that are one vector of floats")
    return obs


def _moved(record: Record, noise: Float[Array, "... n"]) -> Record:
    return dataclasses.replace(record, obs=record.obs + noise, next_obs=record.next_obs + noise)


def _turned(
    x: Shaped[Array, "... n"], order: tuple[int, ...], sign: tuple[int, ...], what: str
) -> Shaped[Array, "... n"]:
    for asked in (order, sign):
        if asked and len(asked) != x.shape[-1]:
            raise Mistake(
                f"the symmetry speaks of {len(asked)} {what} where there are {x.shape[-1]}"
            )
    if order:
        x = x[..., jnp.asarray(order, jnp.int32)]
    return x * jnp.asarray(sign, x.dtype).reshape((1,) * (x.ndim - 1) + (-1,)) if sign else x


def _where(
    chosen: Bool[Array, "..."], new: Shaped[Array, "..."], old: Shaped[Array, "..."]
) -> Shaped[Array, "..."]:
    """``new`` in the rows that are chosen; ``chosen`` has their first axes."""
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (new.ndim - chosen.ndim)), new, old)


def _signed(words: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Places and their signs."""
    each = [word.strip() for word in words.split(",") if words]
    sign = tuple(-1 if word.startswith("-") else 1 for word in each)
    order = tuple(int(word.lstrip("+-")) for word in each)
    return order, sign if -1 in sign else ()
