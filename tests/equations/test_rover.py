"""ROVER's theorem on every node of small random trees, and where it stops to hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations import rover

CHOICES = 3


def grow(rng, depth, leaf):
    """A random tree: a number is an end with that reward, None a choice that is not there."""
    if depth == 0 or rng.random() < 0.15:
        return leaf(rng)
    tree = [grow(rng, depth - 1, leaf) if rng.random() < 0.85 else None for _ in range(CHOICES)]
    return tree if any(child is not None for child in tree) else leaf(rng)


def values(tree):
    """Q^u of the root's choices, which of them are there, and the same of every child."""
    legal = jnp.asarray([child is not None for child in tree])
    q, below = [], []
    for child in tree:
        inner = values(child) if isinstance(child, list) else None
        reward = jnp.asarray(child if isinstance(child, float) else 0.0)
        nothing = (jnp.zeros(CHOICES), jnp.zeros(CHOICES, bool))
        next_q, next_legal = nothing if inner is None else inner[:2]
        q.append(rover.uniform_target(reward, next_q, next_legal))
        below.append(inner)
    return jnp.stack(q), legal, below


def best(tree):
    """The largest reward that can be reached."""
    return max(best(each) for each in tree if each is not None) if isinstance(tree, list) else tree


def greedy(tree, found):
    """The reward that acting greedily on Q^u earns."""
    q, legal, below = found
    choice = int(jnp.argmax(jnp.where(legal, q, -jnp.inf)))
    child = tree[choice]
    return greedy(child, below[choice]) if isinstance(child, list) else child


def nodes(tree, found):
    yield tree, found
    for child, below in zip(tree, found[2], strict=True):
        if isinstance(child, list):
            yield from nodes(child, below)


def chance(tree):
    """Of success by uniform steps, by plain recursion."""
    if not isinstance(tree, list):
        return tree
    return np.mean([chance(child) for child in tree if child is not None])


@pytest.mark.parametrize("seed", range(12))
def test_greedy_on_the_uniform_policys_values_is_optimal_at_every_node(seed):
    rng = np.random.default_rng(seed)
    tree = grow(rng, 4, lambda rng: 2.0 * float(rng.random() < 0.15))
    tree = tree if isinstance(tree, list) else [tree, 0.0, None]
    for here, found in nodes(tree, values(tree)):
        assert greedy(here, found) == best(here)
        expected = [0.0 if child is None else chance(child) for child in here]
        np.testing.assert_allclose(found[0], expected, rtol=1e-5)
        for child, q in zip(here, found[0], strict=True):
            if child is not None:  # positive exactly where success can still be reached
                assert (float(q) > 0.0) == (best(child) > 0.0)


def test_with_rewards_of_several_sizes_it_fails():
    """A sure 0.4 against a 1 that uniform steps find once in three."""
    tree = [[0.4, 0.4, 0.4], [1.0, 0.0, 0.0], None]
    assert greedy(tree, values(tree)) == 0.4 < best(tree)


def test_where_the_world_draws_the_next_state_it_fails():
    """Left the world wins by itself in 2 of 5 cases; right the policy wins by one choice of 3."""

    def target(rewards):
        return rover.uniform_target(jnp.asarray(0.0), jnp.asarray(rewards), jnp.ones(CHOICES, bool))

    left = 0.4 * target([1.0, 1.0, 1.0]) + 0.6 * target([0.0, 0.0, 0.0])
    right = target([1.0, 0.0, 0.0])
    assert float(left) > float(right)  # and yet the best policy earns 0.4 left, 1 right


def test_the_policy_keeps_every_way_that_leads_to_success():
    tree = [[1.0, 0.0, None], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    q, legal, _ = values(tree)
    warm, cold = (jnp.exp(rover.log_policy(q, legal, rho)) for rho in (1.0, 0.02))
    np.testing.assert_allclose(warm, jax.nn.softmax(jnp.asarray([0.5, 0.0, 2 / 3])), rtol=1e-5)
    assert float(cold[1]) < 1e-9
    assert float(warm.min()) > 0.2
    partly = rover.log_policy(q, jnp.asarray([True, False, True]), 1.0)
    assert float(partly[1]) == -np.inf
    np.testing.assert_allclose(jnp.exp(partly).sum(), 1.0, rtol=1e-6)


def test_errors_by_hand_and_the_target_is_a_constant():
    q = jnp.asarray([[1.0, 2.0, 7.0], [0.5, 7.0, 7.0]])
    mean_q = jnp.asarray([[9.0, 0.25, 7.0], [9.0, 7.0, 7.0]])
    mask = jnp.asarray([[True, True, False], [True, False, False]])
    reward = jnp.asarray([0.5, -0.5])
    found = rover.error(q, mean_q, reward, mask)
    np.testing.assert_allclose(found, [[0.0625, 2.25, 0.0], [1.0, 0.0, 0.0]])
    slope = jax.grad(lambda mean: rover.error(q, mean, reward, mask).sum())(mean_q)
    np.testing.assert_array_equal(slope, np.zeros((2, 3)))


def test_the_implied_values_fit_their_own_targets_at_the_policy_that_they_mean():
    """A policy proportional to pi_old exp(Q / rho) implies Q up to a constant of the state."""
    old = jax.nn.log_softmax(jnp.asarray([0.3, -1.0, 0.5]))
    q, rho = jnp.asarray([0.2, 0.9, 0.0]), 0.5
    new = jax.nn.log_softmax(old + q / rho)
    found = rover.implied_q(new, old, rho)
    np.testing.assert_allclose(found - found[0], q - q[0], rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda old: rover.implied_q(new, old, rho).sum())(old)
    np.testing.assert_array_equal(slope, np.zeros(3))
