"""Data augmentation of transitions: noise, scaling, mix-up and symmetries.

S4RL (Sinha 2021, "S4RL: surprisingly simple self-supervision for offline reinforcement learning",
arXiv:2103.06326, section 4.1), with the same draw for both observations of a row:

    gaussian   s + e, s' + e                    e ~ N(0, sigma^2) for each number
    uniform    s + e, s' + e                    e ~ U(-alpha, alpha) for each number
    scaling    s c, s' c                        c ~ U(low, high), one for a row
    mixup      lambda s + (1 - lambda) s', s'   lambda ~ Beta(alpha, alpha), one for a row

Symmetries of the dynamics (Corrado 2024, "Understanding when dynamics-invariant data augmentations
benefit model-free reinforcement learning updates", arXiv:2310.17786): if (s, a, s') can happen, so
can (g s, h a, g s'). The user must know whether that holds, and whether the reward is unchanged.

An augmentation is called with a record, whose observations are ``(..., n)`` vectors of floats, and
one key; it raises Mistake for other observations. Rewards, discounts, ``last`` and ``mask`` stay
unchanged. Changes of pictures are in :mod:`sterling.equations.picture_augmentation`, and
the words for all of them in :mod:`sterling.equations.augmentation_words`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, Shaped

from sterling.types import Action, Mistake, Record

NO_SIGN_MESSAGE = "Discrete actions have no sign. Give an order of the actions instead."
Augmentation = Callable[[Record, Key[Array, ""]], Record]


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Normal noise of deviation ``sigma``, in the observation's units; the paper uses 3e-4."""

    sigma: float = 3e-4

    def __post_init__(self) -> None:
        if not 0.0 <= self.sigma < math.inf:
            raise Mistake(f"gaussian: sigma must be at least 0 and finite, not {self.sigma}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Add the same noise to both observations."""
        obs = vector_observations(record)
        return _add_noise(record, self.sigma * jax.random.normal(key, obs.shape, obs.dtype))


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Uniform noise between -alpha and alpha, in the observation's units; the paper uses 3e-4."""

    alpha: float = 3e-4

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha < math.inf:
            raise Mistake(f"uniform: alpha must be at least 0 and finite, not {self.alpha}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Add the same noise to both observations."""
        obs = vector_observations(record)
        noise = jax.random.uniform(key, obs.shape, obs.dtype, -self.alpha, self.alpha)
        return _add_noise(record, noise)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Multiplies both observations by a random factor between ``low`` and ``high``; the paper uses
    low in [0.6, 0.8] and high in [1.2, 1.4]."""

    low: float = 0.8
    high: float = 1.2

    def __post_init__(self) -> None:
        if not -math.inf < self.low <= self.high < math.inf:
            given = f"not {self.low} and {self.high}"
            raise Mistake(f"scaling: LOW,HIGH must be finite and LOW at most HIGH, {given}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Multiply both observations of each row by one factor."""
        obs = vector_observations(record)
        factor = jax.random.uniform(key, (*obs.shape[:-1], 1), obs.dtype, self.low, self.high)
        return dataclasses.replace(record, obs=obs * factor, next_obs=record.next_obs * factor)


@dataclasses.dataclass(frozen=True)
class Mixup:
    """Moves the observation towards its successor, by a Beta(alpha, alpha) weight; the paper uses
    0.4. The successor stays, because what follows it is not in the row."""

    alpha: float = 0.4

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < math.inf:
            raise Mistake(f"mixup: alpha must be above 0 and finite, not {self.alpha}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Mix each row's observations with one weight."""
        obs = vector_observations(record)
        weight = jax.random.beta(key, self.alpha, self.alpha, (*obs.shape[:-1], 1), obs.dtype)
        return dataclasses.replace(record, obs=weight * obs + (1.0 - weight) * record.next_obs)


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """Reorders the entries of both observations and of the action, and changes their signs:

        (g s)[i] = obs_sign[i] s[obs_order[i]]       h likewise; a choice c becomes action_order[c]

    An empty order or sign changes nothing. A random ``share`` of the rows is changed; in sequences
    of several steps, all steps or none. ``extras["next_action"]`` is changed like the action.
    """

    obs_order: tuple[int, ...] = ()
    obs_sign: tuple[int, ...] = ()
    action_order: tuple[int, ...] = ()
    action_sign: tuple[int, ...] = ()
    share: float = 0.5

    def __post_init__(self) -> None:
        for order in (self.obs_order, self.action_order):
            if sorted(order) != list(range(len(order))):
                raise Mistake(f"An order must name every index from 0 once, not {order}")
        if not {*self.obs_sign, *self.action_sign} <= {-1, 1}:
            raise Mistake(f"Signs must be -1 or 1, not {self.obs_sign} and {self.action_sign}")
        if not 0.0 <= self.share <= 1.0:
            raise Mistake(f"The share of changed rows must lie in [0, 1], not {self.share}")

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Change the rows that ``key`` draws."""
        vector_observations(record)
        lead = record.mask.shape[:1]  # rows; the steps of a sequence share one draw
        chosen = jax.random.uniform(key, lead) < self.share
        changed = self.changed(record)
        return jax.tree.map(lambda new, old: _select_rows(chosen, new, old), changed, record)

    def changed(self, record: Record) -> Record:
        """Return the record with every row changed."""
        extras = dict(record.extras)
        if "next_action" in extras:
            after = self._of_action(extras["next_action"], record)
            extras["next_action"] = _select_rows(record.last, jnp.zeros_like(after), after)
        return dataclasses.replace(
            record,
            obs=_reorder_and_sign(record.obs, self.obs_order, self.obs_sign, "observations"),
            action=self._of_action(record.action, record),
            next_obs=_reorder_and_sign(
                record.next_obs, self.obs_order, self.obs_sign, "observations"
            ),
            extras=extras,
        )

    def _of_action(self, action: Action, record: Record) -> Action:
        if not (self.action_order or self.action_sign):
            return action
        if not isinstance(action, jax.Array) or action.ndim > record.mask.ndim + 1:
            raise Mistake("Symmetries need actions that are one choice or one vector.")
        if action.ndim > record.mask.ndim:
            return _reorder_and_sign(action, self.action_order, self.action_sign, "actions")
        if self.action_sign:
            raise Mistake(NO_SIGN_MESSAGE)
        return jnp.asarray(self.action_order, action.dtype)[action]


def reflection(
    obs_sign: Sequence[int], action_sign: Sequence[int] = (), share: float = 0.5
) -> Symmetry:
    """Return the symmetry that changes the sign of all numbers with sign -1."""
    return Symmetry((), tuple(obs_sign), (), tuple(action_sign), share)


def permutation(
    obs_order: Sequence[int], action_order: Sequence[int] = (), share: float = 0.5
) -> Symmetry:
    """Return the symmetry that exchanges entries: entry i becomes what entry ``order[i]`` was."""
    return Symmetry(tuple(obs_order), (), tuple(action_order), (), share)


def vector_observations(record: Record) -> Float[Array, "... n"]:
    """Return the observations. Raises Mistake if they are not vectors of floats."""
    obs: Any = record.obs
    single = isinstance(obs, jax.Array) and obs.ndim == record.mask.ndim + 1
    if not (single and jnp.issubdtype(obs.dtype, jnp.floating)):
        raise Mistake("Augmentation needs observations that are vectors of floats.")
    return obs


def _add_noise(record: Record, noise: Float[Array, "... n"]) -> Record:
    return dataclasses.replace(record, obs=record.obs + noise, next_obs=record.next_obs + noise)


def _reorder_and_sign(
    x: Shaped[Array, "... n"], order: tuple[int, ...], sign: tuple[int, ...], what: str
) -> Shaped[Array, "... n"]:
    for asked in (order, sign):
        if asked and len(asked) != x.shape[-1]:
            raise Mistake(
                f"The symmetry has {len(asked)} {what}, the environment has {x.shape[-1]}."
            )
    if order:
        x = x[..., jnp.asarray(order, jnp.int32)]
    return x * jnp.asarray(sign, x.dtype).reshape((1,) * (x.ndim - 1) + (-1,)) if sign else x


def _select_rows(
    chosen: Bool[Array, "..."], new: Shaped[Array, "..."], old: Shaped[Array, "..."]
) -> Shaped[Array, "..."]:
    """Return ``new`` in the chosen rows, ``old`` elsewhere; ``chosen`` has their leading axes."""
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (new.ndim - chosen.ndim)), new, old)
