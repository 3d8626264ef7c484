"""Checkpoints: what is saved comes back, whatever happens in between."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from constants import constant_array

from sterling.experience.rollouts.episode_tally import Tally
from sterling.training.saving import checkpoint
from sterling.types import Mistake


class Part(eqx.Module):
    weight: Any
    activation: Any
    name: str = eqx.field(static=True, default="part")


def arrays() -> dict[str, Any]:
    """A leaf of every kind."""
    numbers = np.random.default_rng(0)
    kinds = "bool uint8 int8 uint16 int32 uint32 float16 float32 bfloat16 float8_e4m3fn complex64"
    tree: dict[str, Any] = {
        kind: jnp.asarray(numbers.integers(0, 2, (3, 4)).astype(np.dtype(kind)))
        for kind in kinds.split()
    }
    with jax.enable_x64(True):
        tree["double"] = jnp.asarray(numbers.normal(size=5))
    return tree | {
        "special": jnp.asarray([np.nan, np.inf, -np.inf, -0.0, 1e-45], jnp.float32),
        "scalar": jnp.asarray(7, jnp.int32),
        "empty": jnp.zeros((0, 3), jnp.float32),
        "weak": jax.vmap(lambda x: jnp.asarray(2.5))(jnp.zeros(3)),
        "host": numbers.normal(size=(4, 5)),
        "transposed": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "strided": np.arange(20, dtype=np.float32)[::3],
        "big_endian": np.arange(4, dtype=">f4"),
        "integer": 2**40,
        "number": 0.1,
        "flag": True,
        "numpy_number": np.float32(0.25),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4, impl="rbg"), 3),
        "nested": ({"a": [jnp.ones(2)]}, None, Part(jnp.ones((2, 2)), jax.nn.relu)),
    }


def words(leaf: Any) -> tuple[Any, ...]:
    """Everything about a leaf that has to survive, comparable."""
    if callable(leaf):
        return (leaf,)
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return (str(leaf.dtype), *words(jax.random.key_data(leaf)))
    array = np.asarray(leaf)
    weak = isinstance(leaf, jax.Array) and leaf.weak_type
    kind = jax.Array if isinstance(leaf, jax.Array) else type(leaf)
    bits = array.astype(array.dtype.newbyteorder("=")) if array.dtype.byteorder == ">" else array
    return kind, array.dtype.name, array.shape, weak, bits.tobytes()


def assert_equal(tree: Any, other: Any) -> None:
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for one, two in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        assert words(one) == words(two)


TWO_KEYS = jax.random.wrap_key_data(np.zeros((2, 2), np.uint32))


def small(value: float) -> dict[str, Any]:
    filled = np.full((3, 50), value, np.float32)
    return {"a": constant_array(filled), "b": {"c": constant_array(range(4))}}


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tree, meta = arrays(), {"alive": [True], "limit": float("inf"), "steps": np.int32(5)}
    path = checkpoint.save(tmp_path, 12, tree, meta)
    assert path == checkpoint.latest_checkpoint(tmp_path) == tmp_path / "000000000012"
    loaded, said = checkpoint.load(tmp_path, tree)
    assert_equal(tree, loaded)
    assert said == {"alive": [True], "limit": float("inf"), "steps": 5}


def test_checkpoint_loads_into_a_shape_template(tmp_path: Path) -> None:
    tree = {"x": jnp.arange(3.0), "key": jax.random.key(1), "weak": jnp.asarray(1.0)}
    checkpoint.save(tmp_path, 1, tree, {})
    assert_equal(tree, checkpoint.load(tmp_path, jax.eval_shape(lambda: tree))[0])


def test_a_tree_may_be_one_array(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, jnp.arange(3), {})
    assert checkpoint.load(tmp_path, jnp.zeros(3, jnp.int32))[0].tolist() == [0, 1, 2]


def test_loaded_arrays_can_be_donated(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, small(1.0), {})
    loaded, _ = checkpoint.load(tmp_path, small(0.0))
    doubled = jax.jit(lambda t: jax.tree.map(lambda x: x + x, t), donate_argnums=0)(loaded)
    assert (doubled["a"] == 2.0).all()
    assert checkpoint.load(tmp_path, small(0.0))[0]["a"][0, 0] == 1.0


def test_safetensors_library_reads_a_checkpoint(tmp_path: Path) -> None:
    tree = {k: v for k, v in arrays().items() if k not in ("float8_e4m3fn", "complex64", "key")}
    path = checkpoint.save(tmp_path, 1, tree, {})
    assert path is not None
    found = safetensors.numpy.load_file(path / "tree.safetensors")
    assert np.array_equal(found["transposed"], np.arange(6).reshape(2, 3).T)
    assert np.array_equal(found["float32"], np.asarray(tree["float32"]))
    assert found["bfloat16"].dtype == ml_dtypes.bfloat16
    assert found["scalar"] == 7
    assert found["nested/2/weight"].shape == (2, 2)


def test_checkpoint_save_keeps_the_newest_two(tmp_path: Path) -> None:
    for step in (1, 20, 300):
        checkpoint.save(tmp_path, step, small(step), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000000020", "000000000300"]
    assert checkpoint.load(tmp_path, small(0.0))[0]["a"][0, 0] == 300


def test_saving_a_checkpoint_step_twice_keeps_both_and_loads_the_second(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        checkpoint.save(tmp_path, 5, small(value), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000000005", "000000000005.1"]
    assert checkpoint.load(tmp_path, small(0.0))[0]["a"][0, 0] == 2.0


def damages() -> dict[str, Any]:
    def truncate(path: Path) -> None:
        os.truncate(path / "tree.safetensors", (path / "tree.safetensors").stat().st_size - 1)

    return {
        "a bit of the data": lambda path: flip(path / "tree.safetensors", -300),
        "a bit of the header": lambda path: flip(path / "tree.safetensors", 20),
        "the end cut off": truncate,
        "an empty file": lambda path: (path / "tree.safetensors").write_bytes(b""),
        "no file": lambda path: (path / "tree.safetensors").unlink(),
        "no meta": lambda path: (path / "meta.json").unlink(),
        "an empty meta": lambda path: (path / "meta.json").write_bytes(b""),
        "another meta": lambda path: (path / "meta.json").write_text("[]"),
    }


@pytest.mark.parametrize("damage", damages())
def test_damaged_checkpoint_falls_back_to_the_previous_with_a_warning(
    tmp_path: Path, damage: str
) -> None:
    checkpoint.save(tmp_path, 1, small(1.0), {"n": 1})
    newest = checkpoint.save(tmp_path, 2, small(2.0), {"n": 2})
    damages()[damage](newest)
    lines: list[str] = []
    tree, meta = checkpoint.load(tmp_path, small(0.0), warn=lines.append)
    assert tree["a"][0, 0] == 1.0
    assert meta == {"n": 1}
    assert len(lines) == 1
    assert "DAMAGED" in lines[0]
    assert str(newest) in lines[0]


def test_checkpoint_meta_checksum_detects_every_flipped_bit(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, small(1.0), {"rate": 0.25, "note": "x"})
    assert path is not None
    meta, good = path / "meta.json", checkpoint.read_meta(path)
    original = meta.read_bytes()
    for offset in range(0, len(original), 5):
        flip(meta, offset)
        with contextlib.suppress(Mistake):  # damaged; else it was a space, or the like
            assert checkpoint.read_meta(path) == good
        meta.write_bytes(original)


def test_all_checkpoints_damaged_or_absent_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, small(1.0), {})
    flip(path / "tree.safetensors", -1)
    with pytest.raises(Mistake, match=r"all checkpoints in .* are damaged"):
        checkpoint.load(tmp_path, small(0.0), warn=lambda line: None)
    with pytest.raises(Mistake, match="has no checkpoint"):
        checkpoint.load(tmp_path / "elsewhere", small(0.0))
    assert checkpoint.latest_checkpoint(tmp_path / "elsewhere") is None


def test_damaged_later_checkpoint_is_removed_after_the_next_save(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, small(step), {})
    flip(tmp_path / "000000000002" / "tree.safetensors", -1)
    checkpoint.save(tmp_path, 1, small(7.0), {}, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["000000000001.1"]
    assert checkpoint.load(tmp_path, small(0.0))[0]["a"][0, 0] == 7.0


def test_intact_later_checkpoint_is_never_removed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 9, small(9.0), {})
    checkpoint.save(tmp_path, 1, small(1.0), {}, keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000000001", "000000000009"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (small(0.0) | {"new": constant_array(np.zeros(2))}, r"no leaf new \(float32\[2\]\)"),
        ({"a": small(0.0)["a"]}, "leaf b/c does not exist"),
        (
            small(0.0) | {"a": constant_array(np.zeros((3, 51)))},
            r"leaf a is float32\[3, 50\].*float32\[3, 51\]",
        ),
        (small(0.0) | {"a": constant_array(np.zeros((3, 50), int))}, r"leaf a .* int32\[3, 50\]"),
        (small(0.0) | {"b": {"c": TWO_KEYS}}, "leaf b/c .* key<fry>"),
    ],
)
def test_checkpoint_of_another_tree_is_refused_naming_the_leaf(
    tmp_path: Path, template: Any, message: str
) -> None:
    checkpoint.save(tmp_path, 1, small(1.0), {})
    with pytest.raises(Mistake, match=message) as caught:
        checkpoint.load(tmp_path, template)
    assert "\n" not in str(caught.value)


def test_unknown_checkpoint_format_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, small(1.0), {})
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoint.save(tmp_path, 2, small(2.0), {})
    monkeypatch.undo()
    with pytest.raises(Mistake, match="has format 2, this Sterling reads 1"):
        checkpoint.load(tmp_path, small(0.0))


def test_checkpoint_of_other_package_versions_warns(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, small(1.0), {})
    assert path is not None
    content = checkpoint.read_meta(path)
    content["versions"]["jax"] = "0.0.1"
    whole = {"sha256": checkpoint.checksum(content), "content": content}
    (path / "meta.json").write_text(json.dumps(whole))
    lines: list[str] = []
    checkpoint.load(tmp_path, small(0.0), warn=lines.append)
    assert len(lines) == 1
    assert f"jax 0.0.1 -> {jax.__version__}" in lines[0]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"b": "text"}}, "leaf a/b is a str"),
        ({"a": np.asarray([None])}, "leaf a has type object"),
        ({"a": np.asarray(["x"])}, "leaf a has type"),
    ],
)
def test_leaves_that_a_checkpoint_cannot_store_are_refused(
    tmp_path: Path, tree: Any, message: str
) -> None:
    with pytest.raises(Mistake, match=message):
        checkpoint.save(tmp_path, 1, tree, {})
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_subtree_loads_without_reading_the_rest(tmp_path: Path) -> None:
    tree = {"agent": {"state": small(3.0)}, "agent_2": jnp.ones(2), "replay": np.ones(1_000_000)}
    path = checkpoint.save(tmp_path, 1, tree, {"n": 1})
    lines: list[str] = []
    flip(path / "tree.safetensors", -1)  # in the replay: nobody looks at it
    part, meta = checkpoint.load_subtree(tmp_path, "agent/state", small(0.0), warn=lines.append)
    assert_equal(part, small(3.0))
    assert meta == {"n": 1}
    assert lines == []
    leaf, _ = checkpoint.load_subtree(tmp_path, "agent/state/b/c", jnp.zeros(4, jnp.int32))
    assert leaf.tolist() == [0, 1, 2, 3]
    with pytest.raises(Mistake, match="no leaf agent/stat/a"):
        checkpoint.load_subtree(tmp_path, "agent/stat", small(0.0))


def test_checkpoint_loads_from_a_given_step_folder(tmp_path: Path) -> None:
    older = checkpoint.save(tmp_path, 1, small(1.0), {})
    checkpoint.save(tmp_path, 2, small(2.0), {})
    assert checkpoint.load(older, small(0.0))[0]["a"][0, 0] == 1.0


def test_tally_that_was_saved_without_empty_choices_loads_with_zero(tmp_path: Path) -> None:
    tally = Tally.empty(2, masked=True)
    old = {name: getattr(tally, name) for name in ("totals", "episodes", "invalid")}
    checkpoint.save(tmp_path, 1, {"tally": old}, {})
    loaded, _ = checkpoint.load(tmp_path, {"tally": tally})
    assert loaded["tally"].empty_choice.tolist() == [0, 0]
    with pytest.raises(Mistake, match="no leaf other/empty_choice"):
        checkpoint.load(tmp_path, {"tally": old, "other": {"empty_choice": np.zeros(2)}})


def test_checkpoint_larger_than_the_free_disk_is_not_started(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, small(1.0), {})
    lines: list[str] = []
    huge = np.broadcast_to(np.float32(0), (1 << 50,))
    assert checkpoint.save(tmp_path, 2, {"a": huge}, {}, warn=lines.append) is None
    assert len(lines) == 1
    assert "the disk has" in lines[0]
    assert [p.name for p in tmp_path.iterdir()] == ["000000000001"]
