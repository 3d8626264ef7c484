"""Named, counted randomness: different questions get different, reproducible answers."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys


def words(key):
    return tuple(int(word) for word in jax.random.key_data(key))


def test_a_key_is_a_function_of_seed_purpose_and_counter():
    seeds = jnp.array([3, 7], jnp.int32)
    both = random_keys.for_seeds(seeds, "act", 5)
    assert words(both[1]) == words(random_keys.fold(jax.random.key(7), "act", 5))
    assert words(both[0]) != words(both[1])


def test_no_two_keys_of_a_run_are_equal():
    """1,000 counters below each of 40 keys, which are themselves children of few seeds."""
    parents = [
        random_keys.fold(jax.random.key(seed), purpose)
        for seed in range(10)
        for purpose in ("act", "world", "draw", "learn")
    ]
    children = [jax.random.key_data(random_keys.split(parent, "env", 1000)) for parent in parents]
    everything = np.concatenate([np.asarray(rows) for rows in children])
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_random_key_depends_on_the_order_of_purposes():
    key = jax.random.key(0)
    there = random_keys.fold(random_keys.fold(key, "act", 1), "world", 2)
    back = random_keys.fold(random_keys.fold(key, "world", 2), "act", 1)
    assert words(there) != words(back)


def test_neighbouring_counters_give_unrelated_numbers():
    """Every bit flips in half of the neighbours, and draws below neighbours are uncorrelated."""
    dealt = random_keys.split(jax.random.key(1), "env", 20_000)
    data = np.asarray(jax.random.key_data(dealt))
    flips = np.unpackbits((data[1:] ^ data[:-1]).view(np.uint8), axis=1).mean(0)
    assert np.abs(flips - 0.5).max() < 5 * 0.5 / np.sqrt(len(data))
    draws = np.asarray(jax.vmap(lambda key: jax.random.normal(key, ()))(dealt))
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 5 / np.sqrt(len(draws))
    assert abs(draws.mean()) < 5 / np.sqrt(len(draws))
    assert abs(draws.std() - 1.0) < 5 / np.sqrt(len(draws))
