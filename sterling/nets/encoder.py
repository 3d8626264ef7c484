"""From any observation space to one vector of features."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.nets.conv import Torso
from sterling.types import Mistake, Obs

MASK = "action_mask"  # the entry of a dict observation that says which actions are allowed


class Kind(NamedTuple):
    """How one part of an observation is read."""

    name: str  # picture, categories, vector
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()  # of categories: how many each has
    start: tuple[int, ...] = ()  # and the number of its first


class Encoder(eqx.Module):
    """Pictures go through convolutions, categories become one-hot, the rest is flattened; the
    parts of a dict or tuple observation are laid side by side. ``action_mask`` is left out."""

    parts: tuple[Torso | None, ...]
    kinds: tuple[Kind, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], space: spaces.Space[Any]) -> Encoder:
        """An encoder for ``space``; raises :class:`Mistake` for one of nothing to see."""
        parts: list[Torso | None] = []
        kinds = [_kind(leaf) for leaf in leaves(space)]
        if not any(math.prod(kind.shape) for kind in kinds):
            raise Mistake(
                f"an observation of {space} holds no numbers; give at least one, such as a constant"
            )
        size = 0
        for index, (leaf, kind) in enumerate(zip(leaves(space), kinds, strict=True)):
            torso = None
            if kind.name == "picture":
                is_bytes = leaf.dtype == jnp.uint8
                torso = Torso.create(keys.fold(key, "part", index), kind.shape, is_bytes)
            parts.append(torso)
            size += (
                torso.size if torso else sum(kind.sizes) if kind.sizes else math.prod(kind.shape)
            )
        return cls(tuple(parts), tuple(kinds), size)

    @property
    def is_flat(self) -> bool:
        """No pictures: nothing is learned here."""
        return all(part is None for part in self.parts)

    def __call__(self, obs: Obs) -> Float[Array, "... features"]:
        """The features of observations with any leading axes."""
        parts = jax.tree.leaves(without_mask(obs))
        features = [
            _encode(x, torso, kind)
            for x, torso, kind in zip(parts, self.parts, self.kinds, strict=True)
        ]
        return jnp.concatenate(features, -1) if len(features) > 1 else features[0]


def leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """The parts of a space in the order ``jax.tree.leaves`` gives those of :func:`without_mask`:
    an entry of that name further inside is part of the observation proper."""
    if isinstance(space, spaces.Dict):
        return [leaf for name in sorted(space) if name != MASK for leaf in _leaves(space[name])]
    return _leaves(space)


def _leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """All parts."""
    if isinstance(space, spaces.Dict):
        return [leaf for name in sorted(space) for leaf in _leaves(space[name])]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space for leaf in _leaves(part)]
    return [space]


def action_mask(obs: Obs) -> Bool[Array, "... actions"] | None:
    """The mask of allowed actions, where the world gives one.

    A row that allows nothing allows everything: worlds write such rows where an episode is over,
    and after a cut its value is still asked for.
    """
    if isinstance(obs, dict) and MASK in obs:
        mask = obs[MASK].astype(bool)
        return mask | ~mask.any(-1, keepdims=True)
    return None


def without_mask(obs: Obs) -> Obs:
    """The observation proper."""
    if isinstance(obs, dict):
        return {key: value for key, value in obs.items() if key != MASK}
    return obs


def _kind(leaf: spaces.Space[Any]) -> Kind:
    """How a part is read; raises :class:`Mistake` for one that has no numbers of one shape."""
    if isinstance(leaf, spaces.Discrete):
        return Kind("categories", (), (int(leaf.n),), (int(leaf.start),))
    if isinstance(leaf, spaces.MultiDiscrete):
        sizes, start = (tuple(int(n) for n in each.ravel()) for each in (leaf.nvec, leaf.start))
        return Kind("categories", tuple(leaf.nvec.shape), sizes, start)
    if isinstance(leaf, (spaces.Box, spaces.MultiBinary)):
        is_picture = isinstance(leaf, spaces.Box) and _is_picture(leaf.shape)
        return Kind("picture" if is_picture else "vector", tuple(leaf.shape))
    raise Mistake(
        f"an observation of type {type(leaf).__name__} is not understood; "
        "use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict/Tuple of them"
    )


def _encode(x: Array, torso: Torso | None, kind: Kind) -> Float[Array, "... features"]:
    if torso is not None:
        return torso(x)
    x = x.reshape(*x.shape[: x.ndim - len(kind.shape)], math.prod(kind.shape))
    if kind.name == "vector":
        return x.astype(jnp.float32)
    start = np.asarray(kind.start, np.int32).reshape((1,) * (x.ndim - 1) + (-1,))
    return _one_hot(x.astype(jnp.int32) - start, kind.sizes)


def _one_hot(
    x: Int[Array, "... entries"], sizes: tuple[int, ...]
) -> Float[Array, "... sum_of_sizes"]:
    """Each entry's one-hot row, side by side; an entry outside of ``0 .. size - 1`` is all zeros.

    In one operation: one for each entry of a grid of 30 x 30 took half a minute to compile.
    """
    if len(set(sizes)) == 1:
        hot = jax.nn.one_hot(x, sizes[0], dtype=jnp.float32)
        return hot.reshape(*x.shape[:-1], sum(sizes))
    owner = np.repeat(np.arange(len(sizes)), sizes)  # of each feature: the entry it speaks of
    value = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    value = value.reshape((1,) * (x.ndim - 1) + (-1,))
    return (x[..., owner] == value).astype(jnp.float32)


def _is_picture(shape: tuple[int, ...]) -> bool:
    """Three axes, of which the first (channel first) or the last may be short."""
    return len(shape) == 3 and (min(shape[1:]) >= 3 or min(shape[:2]) >= 3)
