"""Which observations are pictures, what their axes mean, and what presets make of them."""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.nets.encoding.encoder_description import describe_observations
from sterling.nets.encoding.residual_convolution import ResidualTorso, max_pool
from sterling.nets.obs_encoder import Encoder
from sterling.problem.picture_layout import picture_layout
from sterling.types import Mistake, Spec

features_of = eqx.filter_jit(lambda encoder, seen: encoder(seen))
ANY = (-np.inf, np.inf, np.float32)
BYTES, UNIT = (0, 255, np.uint8), (0.0, 1.0, np.float32)


def box(shape, kind):
    return spaces.Box(kind[0], kind[1], shape, kind[2])


def spec(space, encoder=None):
    return dataclasses.replace(Spec(space, spaces.Discrete(2)), encoder=encoder)


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        ((4, 84, 84), BYTES, (84, 84, 4, "chw")),
        ((84, 84, 3), BYTES, (84, 84, 3, "hwc")),
        ((10, 10, 4), UNIT, (10, 10, 4, "hwc")),
        ((84, 84), BYTES, (84, 84, 1, "hw")),
        ((84, 84), (0.0, 255.0, np.float32), (84, 84, 1, "hw")),
        ((4, 84, 84, 3), BYTES, (84, 84, 12, "shwc")),
        ((4, 84, 84, 1), UNIT, (84, 84, 4, "shwc")),
        ((4, 3, 84, 84), BYTES, (84, 84, 12, "schw")),
        ((7, 7, 3), BYTES, (7, 7, 3, "hwc")),
        ((20, 4, 4), ANY, None),
        ((20, 4, 4), UNIT, (4, 4, 20, "chw")),
        ((20, 8, 8), ANY, (8, 8, 20, "chw")),
        ((5, 4), ANY, None),
        ((10, 5), UNIT, None),
        ((6, 7), BYTES, None),
        ((84, 84), ANY, None),
        ((4, 84, 84, 3), ANY, None),
        ((84, 84, 4, 3), BYTES, None),
        ((2, 2, 9), BYTES, None),
        ((17,), ANY, None),
    ],
)
def test_picture_layout_is_told_from_shape_and_dtype(shape, kind, expected):
    assert picture_layout(box(shape, kind)) == expected


@pytest.mark.parametrize("shape", [(4, 40, 38, 3), (4, 3, 40, 38), (40, 38)])
def test_obs_encoder_reads_other_picture_layouts_as_the_usual_one(shape):
    """Stacks are merged into channels frame by frame, and grey pictures have one channel."""
    kind = BYTES
    seen = jax.random.randint(jax.random.key(0), (2, 3, *shape), 0, 256).astype(jnp.uint8)
    if len(shape) == 2:
        usual = seen[..., None]
    elif shape[-1] == 3:
        usual = jnp.concatenate([seen[:, :, i] for i in range(4)], -1)
    else:
        usual = jnp.moveaxis(jnp.concatenate([seen[:, :, i] for i in range(4)], 2), 2, -1)
    encoder = Encoder.create(jax.random.key(1), box(shape, kind))
    plain = Encoder.create(jax.random.key(1), box(usual.shape[2:], kind))
    features = features_of(encoder, seen)
    assert features.shape == (2, 3, encoder.size)
    np.testing.assert_allclose(features, features_of(plain, usual), rtol=1e-5, atol=1e-6)


def test_residual_convolution_has_the_size_of_the_impala_paper():
    """Espeholt 2018, figure 3: with 72 x 96 x 3, an LSTM of 256 and one of 64 for instructions the
    large network has 1.6 million parameters. The convolutions are 97,600 of them."""
    shapes_of = partial(eqx.filter_eval_shape, ResidualTorso.create, jax.random.key(0))
    torso = shapes_of((72, 96, 3), True, first=False)
    count = sum(leaf.size for leaf in jax.tree.leaves(torso))
    assert count == 97_600
    assert torso.size == 9 * 12 * 32
    after = (torso.size + 1) * 256 + 4 * 256 * (256 + 1 + 9 + 64 + 256 + 1)
    assert round((count + after) / 1e6, 1) == 1.6
    atari = shapes_of((4, 84, 84), True, first=True)
    assert atari.size == 11 * 11 * 32


@pytest.mark.parametrize("sides", [(12, 12), (9, 14)])
def test_residual_convolution_equals_xla_operations(sides):
    """With XLA's own convolutions and window reduction, padded as TensorFlow's SAME."""
    torso = ResidualTorso.create(jax.random.key(0), (*sides, 3), False, first=False)
    x = jax.random.normal(jax.random.key(1), (2, *sides, 3))

    def convolve(layer, x):
        layout = ("NHWC", "HWIO", "NHWC")
        made = jax.lax.conv_general_dilated(
            x, layer.weight, (1, 1), "SAME", dimension_numbers=layout
        )
        return made + layer.bias.reshape(1, 1, 1, -1)

    def forward(x):
        for block in torso.blocks:
            x = convolve(block.convolution, x)
            window = ((1, 3, 3, 1), (1, 2, 2, 1))
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window, "SAME")
            for unit in block.units:
                inner = convolve(unit.first, jax.nn.relu(x))
                x = x + convolve(unit.second, jax.nn.relu(inner))
        return jax.nn.relu(x).reshape(2, -1)

    found, wanted = features_of(torso, x), jax.jit(forward)(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    assert max_pool(x).shape == (2, -(-sides[0] // 2), -(-sides[1] // 2), 3)


@pytest.mark.parametrize(
    ("shape", "kind", "preset", "line"),
    [
        ((4, 84, 84), BYTES, None, "picture 84x84x4 -> Nature CNN (3,136 features)"),
        ((9, 84, 84), BYTES, "drq", "picture 84x84x9 -> DrQ CNN (39,200 features)"),
        ((4, 84, 84), BYTES, "impala", "picture 84x84x4 -> IMPALA ResNet (3,872 features)"),
        pytest.param(
            *((20, 20, 1), UNIT, "impala-wide"),
            "picture 20x20x1 -> IMPALA ResNet with 4 times its channels (1,152 features)",
            marks=pytest.mark.slow,
        ),
        ((10, 10, 4), UNIT, None, "picture 10x10x4 -> grid CNN (1,024 features)"),
        ((10, 10, 4), UNIT, "flat", "picture 10x10x4 as a vector of 400 -> MLP"),
        ((40, 40), ANY, "nature", "picture 40x40x1 -> Nature CNN (64 features)"),
        ((17,), ANY, None, "vector of 17 -> MLP"),
        ((20, 4, 4), ANY, None, "20x4x4 as a vector of 320 -> MLP"),
    ],
)
def test_obs_encoder_presets_are_described(shape, kind, preset, line):
    made_for = spec(box(shape, kind), preset)
    encoder = eqx.filter_eval_shape(Encoder.create, jax.random.key(0), made_for)
    assert describe_observations({"net": encoder}) == [f"observations: {line}"]
    seen = jax.ShapeDtypeStruct((1, *shape), kind[2])
    assert encoder.size == eqx.filter_eval_shape(features_of, encoder, seen).shape[-1]


def test_obs_encoder_description_lists_every_array():
    space = spaces.Dict(
        {
            "camera": box((64, 64, 3), BYTES),
            "place": spaces.Tuple((spaces.Discrete(5), spaces.MultiDiscrete([2, 3]))),
            "action_mask": spaces.MultiBinary(2),
            "speed": box((2,), ANY),
        }
    )
    encoder = Encoder.create(jax.random.key(0), spec(space))
    assert describe_observations(encoder) == [
        "observations camera: picture 64x64x3 -> Nature CNN (1,024 features)",
        "observations place.0: 1 of 5 -> one-hot (5 features)",
        "observations place.1: 2 choices -> one-hot (5 features)",
        "observations speed: vector of 2 -> MLP",
    ]
    assert encoder.size == 1024 + 5 + 5 + 2


@pytest.mark.parametrize(
    ("shape", "kind", "preset", "remedy"),
    [
        ((84, 84, 4, 3), BYTES, None, "use encoder=nature or impala"),
        ((120, 120), ANY, None, "use encoder=nature or impala"),
        ((84_672,), ANY, None, "keep its axes"),
        ((4, 84, 84), BYTES, "flat", "Leave out encoder=flat"),
    ],
)
def test_obs_encoder_description_notes_a_huge_vector(shape, kind, preset, remedy):
    encoder = Encoder.create(jax.random.key(0), spec(box(shape, kind), preset))
    _, note = describe_observations(encoder)
    assert note.startswith(f"note: observations: {np.prod(shape):,} numbers of shape")
    assert remedy in note


def test_obs_encoder_scales_bytes_also_when_flattened():
    encoder = Encoder.create(jax.random.key(0), spec(box((8, 8, 3), BYTES), "flat"))
    np.testing.assert_allclose(encoder(jnp.full((1, 8, 8, 3), 51, jnp.uint8)), 0.2, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "preset", "said"),
    [
        ((17,), "nature", r"encoder nature needs a picture, and observations have the shape \(17,"),
        ((10, 10, 4), "nature", "sides of 36 or more, not 10x10x4. Use impala or grid"),
    ],
)
def test_obs_encoder_presets_refuse_unsuitable_spaces(shape, preset, said):
    with pytest.raises(Mistake, match=said):
        Encoder.create(jax.random.key(0), spec(box(shape, ANY), preset))
