"""Answers written in two parts at the same time are those of one, in the same order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import random_keys
from sterling.language.models.causal_lm import tiny
from sterling.language.models.generation import Prompts, generate
from sterling.language.models.parallel_generation import generate_in_parallel
from sterling.language.models.token_sampling import Sampling

VOCABULARY, ROOM, LIMIT = 12, 6, 5


def prompts(rows, total, temperature=1.0):
    """For two seeds; the first has only ``total``, and padding after them."""
    ids = jax.random.randint(jax.random.key(1), (2, rows, ROOM), 1, VOCABULARY, jnp.int32)
    number = jnp.arange(rows, dtype=jnp.int32)
    alike = number % ROOM + 1, number, Sampling.for_rows(rows, temperature)
    lengths, number, how = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, *x.shape)), alike)
    return Prompts(ids, lengths, jnp.asarray([total, rows]), number, how, LIMIT, rows, (0,))


@pytest.fixture(scope="module")
def write():
    model = tiny(VOCABULARY, "nano")
    own = random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "answer", 0)
    return lambda some: jax.vmap(generate, (None, 0, 0))(model, some, own)


@pytest.mark.parametrize(
    ("rows", "temperature"), [pytest.param(16, 0.0, marks=pytest.mark.slow), (24, 1.0)]
)
def test_parallel_generation_in_two_parts_equals_one_part(write, rows, temperature):
    asked = prompts(rows, rows - 3, temperature)
    whole = generate_in_parallel(write, asked, parts=1)
    for _ in range(2):  # one part after the other where the program is new, then both at once
        parts = generate_in_parallel(write, asked, parts=2)
        for name in ("ids", "length", "stopped"):
            np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
        np.testing.assert_allclose(parts.log_prob, whole.log_prob, atol=1e-5)
    assert (whole.length[0, -3:] == 0).all()  # padding is no prompt, in either half
    assert (whole.length[1] > 0).all()
    assert len({tuple(ids) for ids in whole.ids[1]}) > 2  # another order would be seen


def test_parallel_generation_does_not_split_few_prompts(write):
    heard = []

    def listening(some):
        heard.append(some.lengths.shape)
        return write(some)

    generate_in_parallel(listening, prompts(8, 8), parts=2)
    assert heard == [(2, 8)]
