"""Constants are what JAX makes of the same words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array, constant_key


@pytest.mark.parametrize(
    "given",
    [
        ([1.0, 0.1],),
        ([[3, -1]],),
        ([True, False],),
        ([1, 0], bool),
        ([2, 7], jnp.int32),
        (np.ones(3),),
        (0.0,),
    ],
    ids=str,
)
def test_an_array_is_the_one_that_jax_makes(given):
    found, wanted = constant_array(*given), jnp.asarray(np.asarray(given[0]), *given[1:])
    assert (found.dtype, found.weak_type) == (wanted.dtype, wanted.weak_type)
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_a_key_is_the_one_that_jax_makes():
    found, wanted = constant_key(3), jax.random.key(3)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(wanted))
    assert jax.random.normal(found) == jax.random.normal(wanted)
