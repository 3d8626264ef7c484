"""JAX's arrays and keys for the top level of a test module: making them runs no JAX program.

``jnp.asarray`` and ``jax.random.key`` compile a program for each shape; every worker would do it
for all modules, whichever of their tests it runs.
"""

from typing import Any

import jax
import numpy as np

NARROW = {"float64": np.float32, "int64": np.int32}  # JAX's numbers have 32 bits


def constant_array(values: Any, dtype: Any = None) -> jax.Array:
    """Return ``jnp.asarray(values, dtype)``."""
    found = np.asarray(values, dtype)
    return jax.device_put(found.astype(NARROW.get(found.dtype.name, found.dtype)))


def constant_key(seed: int) -> jax.Array:
    """Return ``jax.random.key(seed)``."""
    return jax.random.wrap_key_data(np.array([0, seed], np.uint32))
