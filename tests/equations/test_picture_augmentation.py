"""Changed pictures, pixel by pixel, against the equations written with loops in NumPy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.equations.augmentation_words import fit_augmentation, parse_augmentation
from sterling.equations.picture_augmentation import (
    Crop,
    Cutout,
    OnPictures,
    Shift,
    Translate,
    picture_layouts,
    resample,
)
from sterling.types import Mistake, Record, Spec

KEY = constant_key(3)
ROWS, HEIGHT, WIDTH = 40, 9, 12
ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)
PICTURES = np.random.default_rng(0).integers(0, 256, (ROWS, HEIGHT, WIDTH, 2)).astype(np.uint8)


def bilinear(picture, y, x):
    """The pixel at a place, edges repeated: the mean of four by their nearness."""

    def pixel(i, j):
        at = picture[min(max(i, 0), HEIGHT - 1), min(max(j, 0), WIDTH - 1)]
        return at.astype(np.float64)

    i, j = math.floor(y), math.floor(x)
    down, right = y - i, x - j
    return (
        (1 - down) * (1 - right) * pixel(i, j)
        + (1 - down) * right * pixel(i, j + 1)
        + down * (1 - right) * pixel(i + 1, j)
        + down * right * pixel(i + 1, j + 1)
    )


def by_loops(place):
    """The pictures of ``place(row, i, j)``, which returns a place, or None for black."""
    made = np.zeros(PICTURES.shape)
    for row, i, j in np.ndindex(ROWS, HEIGHT, WIDTH):
        at = place(row, i, j)
        if at is not None:
            made[row, i, j] = bilinear(PICTURES[row], *at)
    return made


def test_picture_shift_by_whole_pixels_repeats_the_edges():
    change = Shift(3)
    dy, dx = (np.asarray(each) for each in change.draw(KEY, ROWS))
    assert set(dy) == set(dx) == set(range(-3, 4))
    found = jax.jit(change)(jnp.asarray(PICTURES), KEY)
    assert found.dtype == jnp.uint8
    wanted = by_loops(lambda row, i, j: (i + dy[row], j + dx[row]))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_picture_shift_by_subpixels_is_bilinear(kind):
    change = Shift(3, subpixel=True)
    dy, dx = (np.asarray(each, np.float64) for each in change.draw(KEY, ROWS))
    for drawn in (dy, dx):
        assert -3 < drawn.min() < -2.5
        assert 2.5 < drawn.max() < 3
    found = jax.jit(change)(jnp.asarray(PICTURES.astype(kind)), KEY)
    assert found.dtype == kind
    wanted = by_loops(lambda row, i, j: (i + dy[row], j + dx[row]))
    rounding = 0.501 if kind == np.uint8 else 1e-3
    assert np.abs(np.asarray(found, np.float64) - wanted).max() < rounding


def test_picture_translation_fills_with_black():
    change = Translate(4)
    dy, dx = (np.asarray(each) for each in Shift(4).draw(KEY, ROWS))

    def place(row, i, j):
        y, x = i + dy[row], j + dx[row]
        return (y, x) if 0 <= y < HEIGHT and 0 <= x < WIDTH else None

    found = jax.jit(change)(jnp.asarray(PICTURES), KEY)
    assert found.dtype == jnp.uint8
    np.testing.assert_array_equal(found, by_loops(place))


def test_picture_crop_is_resized_to_the_full_picture():
    change = Crop(4)
    less, top, left = (np.asarray(each) for each in change.draw(KEY, ROWS))
    assert set(less) == set(range(5))
    assert (top <= less).all()
    assert (left <= less).all()
    assert top.max() == left.max() == 4

    def place(row, i, j):
        down, right = (HEIGHT - 1 - less[row]) / (HEIGHT - 1), (WIDTH - 1 - less[row]) / (WIDTH - 1)
        return top[row] + i * down, left[row] + j * right

    found = jax.jit(change)(jnp.asarray(PICTURES), KEY)
    assert np.abs(np.asarray(found, np.float64) - by_loops(place)).max() < 0.51
    whole = less == 0
    np.testing.assert_array_equal(np.asarray(found)[whole], PICTURES[whole])


def test_picture_cutout_blackens_one_rectangle():
    change = Cutout(2, 5)
    first, end = (np.asarray(each) for each in change.draw(KEY, ROWS, (HEIGHT, WIDTH)))
    assert set((end - first).ravel()) == {2, 3, 4, 5}
    assert first.min() == 0
    assert (end.max(1) == [HEIGHT, WIDTH]).all()
    wanted = PICTURES.copy()
    for row in range(ROWS):
        wanted[row, first[0, row] : end[0, row], first[1, row] : end[1, row]] = 0
    np.testing.assert_array_equal(jax.jit(change)(jnp.asarray(PICTURES), KEY), wanted)


def record(obs, next_obs, steps=()):
    rows = (ROWS, *steps)
    ones, no = jnp.ones(rows), jnp.zeros(rows, bool)
    return Record(obs, jnp.zeros((*rows, 1)), ones, ones, next_obs, no, ~no)


LAYOUTS = {  # spaces, and how their axes come from (height, width, frame, channel)
    "grey": ((HEIGHT, WIDTH), "hw"),
    "first": ((6, HEIGHT, WIDTH), "chw"),
    "last": ((HEIGHT, WIDTH, 3), "hwc"),
    "stack first": ((2, 3, HEIGHT, WIDTH), "schw"),
    "stack last": ((2, HEIGHT, WIDTH, 3), "shwc"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_picture_augmentation_moves_all_frames_and_channels_alike(name):
    """Pictures of the same numbers in all frames and channels stay so, whatever their axes."""
    shape, order = LAYOUTS[name]
    spec = Spec(spaces.Box(0, 255, shape, np.uint8), ACTION)
    change = fit_augmentation("shift:3", spec)
    assert picture_layouts(spec)[0].order == order
    axes = [axis + 1 for axis, letter in enumerate(order) if letter in "sc"]
    grey = jnp.asarray(PICTURES[..., 0])
    obs = jnp.broadcast_to(jnp.expand_dims(grey, axes), (ROWS, *shape))
    after = change(record(obs, obs), KEY)
    assert after.obs.dtype == jnp.uint8
    alone = Shift(3)(grey[..., None], KEY)[..., 0]
    wanted = jnp.broadcast_to(jnp.expand_dims(alone, axes), (ROWS, *shape))
    np.testing.assert_array_equal(after.obs, wanted)
    assert not np.array_equal(after.next_obs, after.obs)  # draws of its own


def test_picture_augmentation_changes_only_pictures_of_a_dict_observation():
    """Two pictures move alike; vectors, bytes among them, stay."""
    picture = spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8)
    space = spaces.Dict({"z": spaces.Box(0, 255, (4,), np.uint8), "right": picture,
                         "left": picture, "inner": spaces.Dict({"x": ACTION})})  # fmt: skip
    change = fit_augmentation("subpixel-shift:2", Spec(space, ACTION))
    grey = jnp.asarray(PICTURES[..., 0])
    obs = {"z": jnp.ones((ROWS, 4), jnp.uint8), "right": grey, "left": grey,
           "inner": {"x": jnp.ones((ROWS, 1))}}  # fmt: skip
    after = change(record(obs, obs), KEY).obs
    np.testing.assert_array_equal(after["z"], obs["z"])
    np.testing.assert_array_equal(after["inner"]["x"], obs["inner"]["x"])
    np.testing.assert_array_equal(after["left"], after["right"])
    assert not np.array_equal(after["left"], grey)


def test_picture_augmentation_moves_all_steps_of_a_sequence_alike():
    """The successor of a step is the observation of the next one, moved as it is there."""
    change = fit_augmentation(
        "shift:3", Spec(spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8), ACTION)
    )
    every = jnp.asarray(PICTURES.reshape(ROWS // 4, 8, HEIGHT, WIDTH))
    obs, following = every[:, :-1], every[:, 1:]
    after = change(record(obs, following, (7,)), KEY)
    np.testing.assert_array_equal(after.obs[:, 1:], after.next_obs[:, :-1])
    assert not np.array_equal(after.obs, obs)


def test_picture_augmentation_changes_draws_by_key_and_no_other_field():
    spec = Spec(spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8), ACTION)
    grey = jnp.asarray(PICTURES[..., 0])
    before = record(grey, grey)
    for text in ("shift", "subpixel-shift", "translate:2", "crop:3", "cutout:1,4"):
        change = jax.jit(fit_augmentation(text, spec))
        one, other = change(before, KEY), change(before, jax.random.key(4))
        assert not np.array_equal(one.obs, other.obs)
        np.testing.assert_array_equal(change(before, KEY).obs, one.obs)
        for name in ("action", "reward", "discount", "last", "mask"):
            np.testing.assert_array_equal(getattr(one, name), getattr(before, name))


def test_picture_augmentation_accepts_float_pictures_if_an_encoder_is_chosen():
    wide = spaces.Box(-np.inf, np.inf, (5, 5), np.float32)
    assert picture_layouts(Spec(wide, ACTION)) == (None,)
    chosen = dataclasses.replace(Spec(wide, ACTION), encoder="grid")
    assert picture_layouts(chosen)[0].order == "hw"
    assert isinstance(fit_augmentation("shift:1", chosen), OnPictures)


def test_augmentation_words_parse_to_picture_augmentations():
    assert parse_augmentation("shift") == Shift(4)
    assert parse_augmentation("shift:2") == Shift(2)
    assert parse_augmentation("subpixel-shift") == Shift(4, subpixel=True)
    assert parse_augmentation("translate:6") == Translate(6)
    assert parse_augmentation("crop") == Crop(16)
    assert parse_augmentation("cutout:3,9") == Cutout(3, 9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shfit", "did you mean shift"),
        ("shift:2.5", "Write shift:PIXELS"),
        ("shift:-1", "shift: pixels must be at least 0, not -1"),
        ("cutout:4", None),
        ("cutout:9,3", "cutout: pixels must be at least 9, not 3"),
        ("cutout:1,2,3", "Write cutout:LEAST,MOST"),
    ],
)
def test_picture_augmentation_refuses_wrong_words(text, said):
    if said is None:
        assert parse_augmentation(text) == Cutout(4, 30)
        return
    with pytest.raises(Mistake, match=said) as caught:
        parse_augmentation(text)
    assert "\n" not in str(caught.value)


def test_picture_augmentation_refuses_spaces_that_do_not_fit():
    vector = Spec(spaces.Box(-1, 1, (3,), np.float32), ACTION)
    with pytest.raises(Mistake, match=r"shift:4 changes pictures, and Box.* has none\."):
        fit_augmentation("shift:4", vector)
    small = Spec(spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8), ACTION)
    grey = jnp.asarray(PICTURES[..., 0])
    with pytest.raises(Mistake, match=r"crop:16 leaves nothing of 9x12\. Use less\."):
        fit_augmentation("crop:16", small)(record(grey, grey), KEY)
    with pytest.raises(Mistake, match=r"cutout:10,30 is larger than pictures of 9x12\. Use"):
        fit_augmentation("cutout", small)(record(grey, grey), KEY)
    with pytest.raises(Mistake, match="vectors of floats"):
        fit_augmentation("gaussian", small)


def test_picture_resample_at_pixel_positions_is_the_identity():
    rows = jnp.broadcast_to(jnp.arange(HEIGHT), (ROWS, HEIGHT))
    columns = jnp.broadcast_to(jnp.arange(WIDTH), (ROWS, WIDTH))
    np.testing.assert_array_equal(resample(jnp.asarray(PICTURES), rows, columns), PICTURES)
