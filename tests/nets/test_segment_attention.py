"""Attention in blocks equals dense attention, and builds no array of tokens by tokens."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.models.sequence_packing import PackedBatch, TokenRows
from sterling.nets.attention import segment_attention
from sterling.nets.attention.dense_attention import attend
from sterling.nets.attention.segment_attention import attend_in_blocks
from sterling.nets.attention.segments import Segments

SIZE = 8


def packs(seed, batch, time):
    """Rows of groups of lines with a shared prompt, some longer than a block, and padding."""
    random = np.random.default_rng(seed)
    found = np.tile(np.arange(time, dtype=np.int32), (3, batch, 1))
    for row in range(batch):
        begin = number = 0
        while begin + 20 < time:
            end = min(begin + random.integers(5, 70), time)
            if number % 4 == 0:
                first, shared = begin, random.integers(1, end - begin)
            found[0, row, begin:end] = begin
            found[1, row, begin:end] = first
            found[2, row, begin:end] = first + (shared if number % 4 else 0)
            begin, number = end, number + 1
    return Segments(*map(jnp.asarray, found))


def drawn(seed, shape, kind=jnp.float32):
    """Queries, keys, values and weights of the output. ``shape``: rows, heads, key heads, time."""
    random, (batch, heads, few, time) = np.random.default_rng(seed), shape
    shapes = [(batch, each, time, SIZE) for each in (heads, few, few, heads)]
    return [jnp.asarray(random.normal(size=shape), kind) for shape in shapes]


@partial(jax.jit, static_argnums=0)
def with_gradients(function, parts, segments):
    *inputs, weight = parts

    def loss(*inputs):
        found = function(*inputs, segments)
        return jnp.sum(found.astype(jnp.float32) * weight.astype(jnp.float32)), found

    return jax.grad(loss, (0, 1, 2), has_aux=True)(*inputs)


def dense(queries, keys, values, segments):
    return attend(queries, keys, values, segments.dense())


def remembering_nothing(*inputs):
    """The same in a loop of one step that keeps no activations, as layers may run."""
    step = jax.checkpoint(lambda carry, _: (carry, attend_in_blocks(*inputs)))
    return jax.lax.scan(step, 0, None, length=1)[1][0]


@pytest.mark.parametrize("some_valid", [False, True])
def test_tokens_attend_to_their_segment_up_to_themselves_and_to_its_prefix(some_valid):
    batch, time = 2, 90
    valid = np.random.default_rng(6).random((batch, time)) < 0.7
    segments = packs(5, batch, time)
    if some_valid:
        segments = Segments(segments.begin, segments.prefix, segments.end, jnp.asarray(valid))
    found, prefixes = np.asarray(segments.dense()), 0
    for row in range(batch):
        for at in range(time):
            begin, prefix, end = (int(x[row, at]) for x in jax.tree.leaves(segments)[:3])
            expected = {*range(begin, at + 1), *range(prefix, end)}
            if some_valid:
                expected = {each for each in expected if valid[row, each]} | {at}
            assert {*np.flatnonzero(found[row, at])} == expected
            prefixes += end > prefix
    assert prefixes


@pytest.mark.parametrize(
    ("heads", "key_heads", "time", "kind"),
    [(4, 1, 300, jnp.float32), (4, 2, 160, jnp.float32), (2, 2, 200, jnp.bfloat16)],
)
def test_block_attention_equals_dense_attention(heads, key_heads, time, kind):
    near = 1e-5 if kind == jnp.float32 else 0.1
    valid = jnp.asarray(np.random.default_rng(1).random((3, time)) < 0.7)
    for segments in (packs(0, 3, time), Segments.causal(time), Segments.causal(time, valid)):
        parts = drawn(2, (3, heads, key_heads, time), kind)
        expected = with_gradients(dense, parts, segments)
        for function in (attend_in_blocks, remembering_nothing):
            found = with_gradients(function, parts, segments)
            for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                assert one.dtype == kind
                both = (np.asarray(x, np.float32) for x in (one, other))
                np.testing.assert_allclose(*both, rtol=near, atol=near)


@pytest.mark.parametrize("scores", [1, 1 << 14, 1 << 24])
def test_block_attention_does_not_depend_on_how_many_blocks_run_together(scores, monkeypatch):
    parts, segments = drawn(3, (2, 2, 1, 200)), packs(4, 2, 200)
    expected = with_gradients(dense, parts, segments)
    monkeypatch.setattr(segment_attention, "CPU_SCORES", scores)
    found = jax.jit(lambda *args: with_gradients.__wrapped__(attend_in_blocks, *args))(
        parts, segments
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), found, expected)


def test_block_attention_over_seeds_equals_each_seed_alone():
    seeds = [(drawn(seed, (2, 2, 1, 150)), packs(seed, 2, 150)) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *seeds)
    found = jax.vmap(partial(with_gradients, attend_in_blocks))(*stacked)
    for number, alone in enumerate(seeds):
        expected = with_gradients(attend_in_blocks, *alone)
        jax.tree.map(
            lambda x, y, i=number: np.testing.assert_allclose(x[i], y, rtol=1e-5, atol=1e-5),
            found,
            expected,
        )


def arrays(jaxpr):
    """Yield the shapes of all intermediate arrays, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield from (each.aval.shape for each in equation.outvars)
        for inner in jax.core.jaxprs_in_params(equation.params):
            yield from arrays(inner)


@pytest.mark.parametrize("packed", [False, True])
def test_long_lines_are_learned_without_an_array_of_tokens_by_tokens(packed):
    """The gradient of lines of 8,192 tokens: memory grows with the tokens, not their square."""
    time, form = 8192, qwen3_form(64, 4, 1)
    create = partial(LanguageModel.create, vocabulary=300, width=64, form=form, layers=2)
    model = jax.eval_shape(create, jax.random.key(0))
    ids = jax.ShapeDtypeStruct((4, time), jnp.int32)
    mask = jax.ShapeDtypeStruct((4, time - 1), jnp.bool)

    def loss(model, ids, mask):
        rows = TokenRows.one_per_row(ids)
        if packed:
            rows = PackedBatch.from_lines(ids, mask, 4, 1).read(jnp.zeros((), jnp.int32))
        return jnp.sum(rows.log_prob(model)[0])

    shapes = list(arrays(jax.make_jaxpr(jax.grad(loss))(model, ids, mask).jaxpr))
    assert any(time in shape for shape in shapes)
    square = [shape for shape in shapes if sum(axis >= time for axis in shape) > 1]
    assert not square
