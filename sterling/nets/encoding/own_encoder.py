"""A user's encoder of observations: check what the factory makes, and call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Key, PyTree

from sterling.lookup import user_imports
from sterling.types import Mistake, Obs

SAMPLE_ROWS = 2  # observations in the batch with which a new encoder is checked
CONTRACT = "make(key, space) must return an equinox.Module that maps a batch of observations"


class OwnEncoder(eqx.Module):
    """A user's module, divided into the arrays that are trained and everything else.

    The module is always called with exactly one leading axis, whatever axes the observations have.
    """

    arrays: PyTree
    rest: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of an observation's leaves
    size: int = eqx.field(static=True)  # number of features
    name: str = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        space: spaces.Space[Any],
        factory: Callable[..., Any],
        name: str,
    ) -> OwnEncoder:
        """Create the encoder ``factory(key, space)``; ``space`` has no action mask.

        Raises :class:`Mistake` if it raises, is no Module, holds arrays that cannot be trained, or
        does not map a batch of observations to one row of features each.
        """
        try:
            module = factory(key, space)
        except Mistake:
            raise
        except Exception as error:
            why = user_imports.describe_error(error)
            raise Mistake(f"the encoder {name} raises {why}") from error
        if not isinstance(module, eqx.Module):
            raise Mistake(f"the encoder {name} returns {_kind(module)}. {CONTRACT}.")
        _check_arrays(module, name)
        arrays, rest = eqx.partition(module, eqx.is_inexact_array)
        arrays = jax.tree.map(jnp.asarray, arrays)  # some may be NumPy's
        sample = _sample_batch(space)
        shapes = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(sample))
        return cls(arrays, rest, shapes, _feature_count(module, sample, name), name)

    def __call__(self, obs: Obs) -> Float[Array, "... features"]:
        """Return the features of observations (without a mask) with any leading axes."""
        leaves, structure = jax.tree.flatten(obs)
        lead = leaves[0].shape[: leaves[0].ndim - len(self.shapes[0])]
        batch = [x.reshape(-1, *shape) for x, shape in zip(leaves, self.shapes, strict=True)]
        module: Any = eqx.combine(self.arrays, self.rest)
        features = module(jax.tree.unflatten(structure, batch))
        return features.astype(jnp.float32).reshape(*lead, self.size)


def _check_arrays(module: Any, name: str) -> None:
    """Raise Mistake for arrays in the module that are not floats: they have no gradient."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        if isinstance(leaf, (jax.Array, np.ndarray)) and not eqx.is_inexact_array(leaf):
            place = jax.tree_util.keystr(path).lstrip(".")
            raise Mistake(
                f"the encoder {name} holds {place}, a {type(leaf).__name__} of {leaf.dtype} that "
                "cannot be trained. Make it an array of floats, or compute it in __call__."
            )
    try:
        hash(eqx.partition(module, eqx.is_inexact_array)[1])
    except TypeError as error:
        raise Mistake(
            f"the encoder {name} holds something that cannot be hashed ({error}), which compiled "
            "programs need. Use tuples instead of lists."
        ) from error


def _sample_batch(space: spaces.Space[Any]) -> Any:
    """Return the shapes and types of a batch of observations from ``space``."""

    def leaf(each: spaces.Space[Any]) -> Any:
        if isinstance(each, spaces.Dict):
            return {name: leaf(part) for name, part in each.items()}
        if isinstance(each, spaces.Tuple):
            return tuple(leaf(part) for part in each)
        dtype = jax.dtypes.canonicalize_dtype(each.dtype)
        return jax.ShapeDtypeStruct((SAMPLE_ROWS, *(each.shape or ())), dtype)

    return leaf(space)


def _feature_count(module: Any, sample: Any, name: str) -> int:
    """Return the number of features that the module computes. Raises Mistake where it fails, or
    its own ``size`` is another number."""
    if not callable(module):
        raise Mistake(f"the encoder {name} returns a module without __call__. {CONTRACT}.")
    given = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(sample))
    try:
        made = eqx.filter_eval_shape(module, sample)
    except Exception as error:
        why = user_imports.describe_error(error)
        raise Mistake(
            f"the encoder {name} raises {why} for a batch of observations {given}"
        ) from error
    shape = getattr(made, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != SAMPLE_ROWS or not shape[1]:
        what = _kind(made) if shape is None else f"shape {shape}"
        raise Mistake(
            f"the encoder {name} returns {what} for a batch of observations {given}. It must "
            f"return one row of features each, ({SAMPLE_ROWS}, features)."
        )
    if not jnp.issubdtype(made.dtype, jnp.floating):
        raise Mistake(f"the encoder {name} returns features of {made.dtype}. Return floats.")
    declared = getattr(module, "size", shape[1])
    if declared != shape[1]:
        raise Mistake(f"the encoder {name} has size {declared} but returns {shape[1]} features.")
    return int(shape[1])


def _kind(thing: Any) -> str:
    return f"an object of type {type(thing).__name__}"
