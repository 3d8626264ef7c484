"""The transformer against a plain second writing of it, and its two ways of running."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.nets.attention.dense_attention import attend
from sterling.nets.attention.rotary import apply_rotation, rotary_rates, rotations
from sterling.nets.transformer import Transformer
from sterling.types import Mistake

WIDTH, HEADS, LAYERS, TIME = 8, 2, 2, 6
KINDS = ("none", "rotary", "learned")
run = eqx.filter_jit(Transformer.__call__)


def make(positions="none", layers=LAYERS):
    room = TIME if positions == "learned" else None

    def create(key):
        return Transformer.create(
            key, WIDTH, layers=layers, heads=HEADS, positions=positions, room=room
        )

    return jax.jit(create)(jax.random.key(1))


def tokens(batch=2, time=TIME, seed=0):
    return jax.random.normal(jax.random.key(seed), (batch, time, WIDTH))


def norm(x, module, layer=None):
    scale, shift = np.asarray(module.scale), np.asarray(module.shift)
    scale, shift = (scale, shift) if layer is None else (scale[layer], shift[layer])
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * scale + shift


def linear(x, module, layer):
    return x @ np.asarray(module.weight[layer]) + np.asarray(module.bias[layer])


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def plain(net, x, mask):
    """One sequence, token by token and head by head."""
    size, blocks = WIDTH // HEADS, net.blocks
    x = [np.asarray(row, np.float64) for row in x]
    for layer in range(LAYERS):
        split = [
            np.split(linear(norm(r, blocks.before, layer), blocks.queries, layer), 3) for r in x
        ]
        for t in range(len(x)):
            found = []
            for head in range(HEADS):
                part = slice(head * size, (head + 1) * size)
                seen = [r for r in range(t + 1) if mask[r] or r == t]
                score = [split[t][0][part] @ split[r][1][part] / np.sqrt(size) for r in seen]
                weight = np.exp(score) / np.sum(np.exp(score))
                found.append(sum(w * split[r][2][part] for w, r in zip(weight, seen, strict=True)))
            x[t] = x[t] + linear(np.concatenate(found), blocks.out, layer)
        for t, row in enumerate(x):
            hidden = gelu(linear(norm(row, blocks.between, layer), blocks.up, layer))
            x[t] = row + linear(hidden, blocks.down, layer)
    return np.stack([norm(row, net.norm) for row in x])


def test_transformer_forward_equals_plain_reference():
    net, x = make(), tokens()
    mask = jnp.array(
        [[False, False, True, True, True, True], [True, True, False, True, True, True]]
    )
    found = run(net, x, mask)
    for row in range(2):
        expected = plain(net, np.asarray(x[row]), np.asarray(mask[row]))
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", KINDS)
def test_transformer_is_causal(positions):
    net, x = make(positions), tokens()
    changed = x.at[:, 4:].set(100.0)
    before, after = run(net, x), run(net, changed)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4:] - after[:, 4:]).max() > 0.1


def test_transformer_masked_tokens_do_not_affect_others():
    net, x = make("rotary"), tokens()
    mask = jnp.arange(TIME)[None] >= jnp.array([[2], [0]])
    clean, dirty = run(net, x, mask), run(net, x.at[0, :2].set(1e4), mask)
    np.testing.assert_array_equal(clean[0, 2:], dirty[0, 2:])
    assert np.isfinite(dirty).all()
    np.testing.assert_allclose(clean[1], run(net, x[1:])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("pieces", [(1,) * TIME, (3, 1, 2)])
def test_transformer_steps_with_a_cache_equal_the_whole_sequence(positions, pieces):
    net, x = make(positions), tokens()
    whole, step = run(net, x), eqx.filter_jit(Transformer.step)
    cache, at, found = net.empty(2, TIME), 0, []
    for size in pieces:
        y, cache = step(net, x[:, at : at + size], cache, jnp.full(2, at, jnp.int32))
        found.append(y)
        at += size
    np.testing.assert_allclose(jnp.concatenate(found, 1), whole, rtol=2e-5, atol=2e-6)


def test_transformer_with_more_layers_than_unrolled_is_unchanged():
    """Six layers, of which four are compiled side by side, against one after another."""
    net, x = make(layers=6), tokens()
    at = jnp.arange(TIME, dtype=jnp.int32)[None]
    looks, expected = at[:, :, None] >= at[:, None], x

    @jax.jit
    def one(block, x):
        return net._finish(block, x, attend(*net._split(block, x, rotations(at, ())), looks))

    for layer in range(6):
        expected = one(jax.tree.map(lambda leaf, i=layer: leaf[i], net.blocks), expected)
    np.testing.assert_allclose(run(net, x), net.norm(expected), rtol=1e-4, atol=1e-5)


def test_rotary_embedding_products_depend_on_distances_only():
    q, k = jax.random.normal(jax.random.key(3), (2, 1, 1, 1, 4))

    def product(one, other):
        angles = (rotations(jnp.array([[at]]), rotary_rates(4)) for at in (one, other))
        first, second = map(apply_rotation, (q, k), angles)
        return float(jnp.sum(first * second))

    np.testing.assert_allclose(product(7, 5), product(102, 100), rtol=1e-4)
    assert abs(product(7, 5) - product(7, 4)) > 1e-3
    np.testing.assert_allclose(apply_rotation(q, rotations(jnp.array([[0]]), rotary_rates(4))), q)


def test_transformer_positions_matter_where_given():
    x = jnp.broadcast_to(tokens(1, 1), (1, TIME, WIDTH))  # the same token again and again
    assert np.ptp(run(make("none"), x), 1).max() < 1e-5
    assert np.ptp(run(make("learned"), x), 1).max() > 1e-3


@pytest.mark.slow
def test_transformer_learns_to_copy_the_previous_token():
    """Attention by position: the output at t is the input at t - 1."""
    net = Transformer.create(jax.random.key(0), 16, layers=1, heads=2, positions="rotary")
    read = jnp.eye(16)[:, :4]

    def loss(net, key):
        digit = jax.random.randint(key, (32, 12), 0, 4)
        x = jax.nn.one_hot(digit, 16) * 4.0
        logits = (net(x) @ read)[:, 1:]
        log_p = jax.nn.log_softmax(3.0 * logits)
        return -jnp.mean(jnp.take_along_axis(log_p, digit[:, :-1, None], -1))

    def step(carry, key):
        net, speed = carry
        grads = jax.grad(loss)(net, key)
        speed = jax.tree.map(lambda s, g: 0.9 * s + g, speed, grads)
        return (jax.tree.map(lambda p, s: p - 0.03 * s, net, speed), speed), None

    @jax.jit
    def learned(net):
        start = (net, jax.tree.map(jnp.zeros_like, net))
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(1), 400))[0][0]

    before, after = loss(net, jax.random.key(9)), loss(learned(net), jax.random.key(9))
    assert before > 1.0
    assert after < 0.3


def test_transformer_refuses_wrong_sizes():
    for width, heads, positions in ((8, 3, "none"), (6, 2, "rotary")):
        with pytest.raises(Mistake, match="heads"):
            Transformer.create(jax.random.key(0), width, layers=1, heads=heads, positions=positions)
    with pytest.raises(Mistake, match="rotary"):
        Transformer.create(jax.random.key(0), 8, layers=1, heads=2, positions="absolute")
    with pytest.raises(Mistake, match="room"):
        Transformer.create(jax.random.key(0), 8, layers=1, heads=2, positions="learned")
