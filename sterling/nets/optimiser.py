"""Gradient steps: Adam from optax, with what every algorithm does around it."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

T = TypeVar("T")
SMALL = 1024  # numbers; smaller leaves are handled as one


def adam(
    eps: float = 1e-8, max_norm: Float[Array, ""] | float | None = None
) -> optax.GradientTransformation:
    """Adam's direction (Kingma 2015); the caller multiplies by its step size.

    Gradients are first scaled down to a global norm of at most ``max_norm``. The moments of all
    small leaves are one vector: biases and the like cost a handful of operations together.
    """
    inner = optax.scale_by_adam(eps=eps)

    def init(params: Any) -> Any:
        return inner.init(Packed.of(params))

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        packed: Any = Packed.of(grads)
        if max_norm is not None:
            shrink = jnp.minimum(1.0, max_norm / (packed.norm() + 1e-6))
            packed = jax.tree.map(lambda x: x * shrink.astype(x.dtype), packed)
        with jax.numpy_dtype_promotion("standard"):  # optax: a float to an integer power
            direction, state = inner.update(packed, state)
        return direction.unpacked(grads), state

    return optax.GradientTransformation(init, update)


def global_norm(grads: PyTree) -> Float[Array, ""]:
    """The norm of all gradients as one vector."""
    return Packed.of(grads).norm()


class Packed(eqx.Module):
    """A tree's leaves: the small ones side by side in one vector, the others as they are.

    All of them in one vector would be fewer operations still, but XLA (jaxlib 0.10) divides a large
    concatenation among the cores of a CPU in loops that reach beyond its smaller parts by masked
    instructions, and where no memory is mapped there each costs hundreds of cycles: updates of
    small networks took up to ten times as long, by the chance of addresses.
    """

    small: Float[Array, "number"] | None
    large: tuple[Array, ...]

    @classmethod
    def of(cls, tree: PyTree) -> Packed:
        """The leaves of ``tree``."""
        leaves = jax.tree.leaves(tree)
        small = [leaf.reshape(-1) for leaf in leaves if leaf.size < SMALL]
        large = tuple(leaf for leaf in leaves if leaf.size >= SMALL)
        return cls(jnp.concatenate(small) if small else None, large)

    def norm(self) -> Float[Array, ""]:
        """The norm of all of it as one vector."""
        wide = jnp.float32
        squares = [jnp.vdot(x, x, preferred_element_type=wide) for x in jax.tree.leaves(self)]
        return jnp.sqrt(sum(squares[1:], squares[0]))

    def unpacked(self, like: T) -> T:
        """A tree of the form of ``like``."""
        leaves, form = jax.tree.flatten(like)
        small = [leaf for leaf in leaves if leaf.size < SMALL]
        ends = list(itertools.accumulate(leaf.size for leaf in small))
        cut = iter([] if self.small is None else jnp.split(self.small, ends[:-1]))
        large = iter(self.large)
        back = [
            next(cut).reshape(leaf.shape).astype(leaf.dtype) if leaf.size < SMALL else next(large)
            for leaf in leaves
        ]
        return jax.tree.unflatten(form, back)


def risen(lr: Float[Array, ""] | float, updates: Int[Array, ""], rise: int) -> Float[Array, ""]:
    """The step size after ``updates``: it rises along a line over the first ``rise`` of them."""
    return lr * jnp.minimum((updates + 1).astype(jnp.float32) / max(rise, 1), 1.0)


def descend(params: T, direction: PyTree, rate: Float[Array, ""] | float) -> T:
    """params - rate * direction."""
    return jax.tree.map(lambda p, d: p - rate * d, params, direction)
