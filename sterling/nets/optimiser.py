"""Gradient steps: Adam, RAdam and RMSprop (from optax) with gradient clipping, warm-up, descent."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

T = TypeVar("T")
SMALL_LEAF = 1024  # numbers; leaves with fewer are packed into one vector


def adam(
    eps: Float[Array, ""] | float = 1e-8,
    max_norm: Float[Array, ""] | float | None = None,
    beta1: Float[Array, ""] | float = 0.9,
) -> optax.GradientTransformation:
    """Return Adam's update direction (Kingma 2015); the caller multiplies by the step size.
    ``beta1`` below 1 is the share of its first moments that an update keeps.

    Gradients are first scaled down to a global norm of at most ``max_norm``. The moments of all
    small leaves (such as biases) are stored in one vector, so they need few operations together.
    """
    return _packed(optax.scale_by_adam(beta1, eps=eps), max_norm)


def radam(
    eps: float = 1e-8, max_norm: Float[Array, ""] | float | None = None
) -> optax.GradientTransformation:
    """Return rectified Adam's update direction (Liu 2020, arXiv:1908.03265): bare momentum in the
    first updates, then Adam's, whose length rises to that of :func:`adam` as v has seen more
    gradients. As in the authors' code the change is at 5 degrees of freedom (paper: 4). Clipping
    and storage are those of :func:`adam`."""
    return _packed(optax.scale_by_radam(eps=eps), max_norm)


def rmsprop(
    decay: Float[Array, ""] | float = 0.99,
    eps: float = 1e-5,
    max_norm: Float[Array, ""] | float | None = None,
) -> optax.GradientTransformation:
    """Return RMSprop's update direction g / (sqrt(v) + eps), v the average of g^2 that forgets at
    1 - ``decay`` and begins at 0 (Mnih 2016, eq. 8, with ``eps`` outside of the root); the caller
    multiplies by the step size. Clipping and storage are those of :func:`adam`."""
    return _packed(optax.scale_by_rms(decay, eps, eps_in_sqrt=False), max_norm)


def _packed(
    inner: optax.GradientTransformation, max_norm: Float[Array, ""] | float | None
) -> optax.GradientTransformation:
    """Return ``inner`` on clipped gradients, with its moments of small leaves in one vector."""

    def init(params: Any) -> Any:
        return inner.init(PackedLeaves.from_tree(params))

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        packed: Any = PackedLeaves.from_tree(grads)
        if max_norm is not None:
            shrink = jnp.minimum(1.0, max_norm / (packed.norm() + 1e-6))
            packed = jax.tree.map(lambda x: x * shrink.astype(x.dtype), packed)
        with jax.numpy_dtype_promotion("standard"):  # optax: a float to an integer power
            direction, state = inner.update(packed, state)
        return direction.unpack(grads), state

    return optax.GradientTransformation(init, update)


def global_norm(grads: PyTree) -> Float[Array, ""]:
    """Return the norm of all gradients, taken as one vector."""
    return PackedLeaves.from_tree(grads).norm()


class PackedLeaves(eqx.Module):
    """A tree's leaves: the small ones concatenated to one vector, the large ones unchanged.

    Concatenating all leaves would need still fewer operations. But XLA (jaxlib 0.10) splits a large
    concatenation among the cores of a CPU in loops whose masked instructions reach beyond its
    smaller parts. If no memory is mapped there, each costs hundreds of cycles: depending on the
    addresses, updates of small networks took up to ten times as long.
    """

    small: Float[Array, "number"] | None
    large: tuple[Array, ...]

    @classmethod
    def from_tree(cls, tree: PyTree) -> PackedLeaves:
        """Pack the leaves of ``tree``."""
        leaves = jax.tree.leaves(tree)
        small = [leaf.reshape(-1) for leaf in leaves if leaf.size < SMALL_LEAF]
        large = tuple(leaf for leaf in leaves if leaf.size >= SMALL_LEAF)
        return cls(jnp.concatenate(small) if small else None, large)

    def norm(self) -> Float[Array, ""]:
        """Return the norm of all leaves, taken as one vector."""
        wide = jnp.float32
        squares = [jnp.vdot(x, x, preferred_element_type=wide) for x in jax.tree.leaves(self)]
        return jnp.sqrt(sum(squares[1:], squares[0]))

    def unpack(self, like: T) -> T:
        """Return the leaves as a tree with the structure and dtypes of ``like``."""
        leaves, form = jax.tree.flatten(like)
        small = [leaf for leaf in leaves if leaf.size < SMALL_LEAF]
        ends = list(itertools.accumulate(leaf.size for leaf in small))
        cut = iter([] if self.small is None else jnp.split(self.small, ends[:-1]))
        large = iter(self.large)
        back = [
            next(cut).reshape(leaf.shape).astype(leaf.dtype)
            if leaf.size < SMALL_LEAF
            else next(large)
            for leaf in leaves
        ]
        return jax.tree.unflatten(form, back)


def warmup_lr(lr: Float[Array, ""] | float, updates: Int[Array, ""], rise: int) -> Float[Array, ""]:
    """Return the step size after ``updates``; it rises linearly over the first ``rise`` updates."""
    return lr * jnp.minimum((updates + 1).astype(jnp.float32) / max(rise, 1), 1.0)


def falling_lr(
    lr: Float[Array, ""] | float,
    share: Float[Array, ""] | float,
    updates: Int[Array, ""],
    planned: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the step size after ``updates`` of ``planned`` ones; it falls in a straight line by
    ``share`` of ``lr``, and stays there."""
    return lr * (1.0 - share * jnp.minimum(updates.astype(jnp.float32) / planned, 1.0))


def adamw_step(
    params: T,
    grads: T,
    state: optax.OptState,
    rate: Float[Array, ""] | float,
    decay: Float[Array, ""] | float,
    *,
    max_norm: Float[Array, ""] | float | None = None,
) -> tuple[T, optax.OptState]:
    """Return params - rate * (Adam's direction + decay * params), and the state of Adam (AdamW;
    Loshchilov 2019, arXiv:1711.05101). ``max_norm`` as in :func:`adam`."""
    direction, state = adam(max_norm=max_norm).update(grads, state)
    steps = jax.tree.map(lambda d, p: d + decay * p, direction, params)
    return descend(params, steps, rate), state


def descend(params: T, direction: PyTree, rate: Float[Array, ""] | float) -> T:
    """Return params - rate * direction."""
    return jax.tree.map(lambda p, d: p - rate * d, params, direction)
