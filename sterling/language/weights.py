"""The weights of checkpoints: safetensors files, one or several, read and written tensor by tensor.

Little more than the model itself is in memory at any time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from jax.typing import DTypeLike
from safetensors.numpy import save_file

from sterling.language import families, lora
from sterling.language.families import Place, Plan
from sterling.language.model import LanguageModel
from sterling.language.tokenizer import read_json
from sterling.types import Mistake

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
KINDS = {"F32": jnp.float32, "BF16": jnp.bfloat16, "F16": jnp.float16}
SHARD = 5_000_000_000  # bytes in one file of weights


class Stored:
    """The tensors of a checkpoint, in however many files; nothing is read before it is asked."""

    def __init__(self, files: Mapping[Path, Any]):
        self._files = {
            name: (path, file) for path, file in files.items() for name in list(file.keys())
        }

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def names(self) -> set[str]:
        """Of all tensors."""
        return set(self._files)

    def file(self, name: str) -> Path:
        """Where a tensor lies."""
        return self._files[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return tuple(self._files[name][1].get_slice(name).get_shape())

    def kind(self, name: str) -> str:
        """A tensor's type, as safetensors calls it."""
        return str(self._files[name][1].get_slice(name).get_dtype())

    def read(self, name: str) -> np.ndarray:
        """A tensor."""
        return self._files[name][1].get_tensor(name)


def open_weights(path: Path, stack: contextlib.ExitStack) -> Any:
    """One safetensors file. Raises :class:`Mistake` where it is missing or damaged."""
    if not path.is_file():
        raise Mistake(f"{path} is missing; copy the whole folder again")
    try:
        return stack.enter_context(safetensors.safe_open(path, "numpy"))
    except safetensors.SafetensorError as error:
        raise Mistake(f"{path} is damaged ({error}); copy it again") from error


def open_folder(path: Path, stack: contextlib.ExitStack) -> Stored:
    """All files of weights in a folder."""
    if (path / WEIGHTS).is_file() or not (path / INDEX).is_file():
        if not (path / WEIGHTS).is_file() and list(path.glob("pytorch_model*.bin")):
            remedy = "save it once with transformers"
            raise Mistake(f"{path} has weights as pickles, not as safetensors; {remedy}")
        return Stored({path / WEIGHTS: open_weights(path / WEIGHTS, stack)})
    index = read_json(path / INDEX).get("weight_map")
    if not isinstance(index, dict) or not all(
        isinstance(name, str) and name and Path(name).name == name for name in index.values()
    ):
        raise Mistake(f"{path / INDEX} has no weight_map of files beside it; copy it again")
    names = sorted(set(index.values()))
    stored = Stored({path / name: open_weights(path / name, stack) for name in names})
    for tensor, name in index.items():
        if tensor not in stored or stored.file(tensor).name != name:
            raise Mistake(f"{path / name} lacks {tensor}, which {INDEX} puts there; copy it again")
    return stored


def fill(
    stored: Stored, wanted: Plan, path: Path, dtype: DTypeLike | None, origin: str
) -> LanguageModel:
    """The tree, filled leaf by leaf once all names and shapes are known to be right."""
    make = jax.eval_shape(lambda: blank(wanted, origin))
    leaves, structure = jax.tree_util.tree_flatten_with_path(make)
    shapes = {tuple(key.name for key in keys): leaf.shape for keys, leaf in leaves}
    by_leaf = {key: list(each) for key, each in groupby(families.places(wanted), _path)}
    _check(stored, shapes, by_leaf, path, wanted.tied)
    first = stored.kind("model.embed_tokens.weight")
    kind = np.dtype(KINDS[first] if dtype is None else dtype)
    if kind not in map(np.dtype, KINDS.values()):
        raise Mistake(f"weights of type {kind} are not known; use float32, bfloat16 or float16")
    filled = [_leaf(stored, shapes[key], by_leaf[key], kind) for key in shapes]
    return jax.tree.unflatten(structure, filled)


def blank(wanted: Plan, origin: str) -> LanguageModel:
    """A model by its plan, with weights that do not matter."""
    model = LanguageModel.create(
        *(jax.random.key(0), wanted.vocabulary, wanted.width, wanted.form, wanted.layers),
        tied=wanted.tied,
    )
    return dataclasses.replace(model, origin=origin)


def typed(model: LanguageModel, dtype: DTypeLike) -> LanguageModel:
    """The model with weights of another type; LoRA's adapters keep theirs."""
    if not lora.adapted(model):
        return jax.tree.map(lambda x: x.astype(dtype), model)
    learned, fixed = lora.split(model)
    return lora.join(learned, jax.tree.map(lambda x: x.astype(dtype), fixed))


def _check(
    stored: Stored,
    shapes: dict[tuple[str, ...], tuple[int, ...]],
    by_leaf: dict[tuple[str, ...], list[Place]],
    path: Path,
    tied: bool,
) -> None:
    """Whether the files hold the tensors that the configuration speaks of, and no others."""
    spare = {name for name in stored.names if name.endswith(".rotary_emb.inv_freq")}
    spare |= {"lm_head.weight"} if tied else set()  # the embedding again
    left = stored.names - spare
    for key, places in by_leaf.items():
        leaf = np.broadcast_to(np.zeros(()), shapes[key])  # takes no memory
        for place in places:
            if place.name not in stored:
                raise Mistake(f"{path} has no tensor {place.name}; copy its weights again")
            file, right = stored.file(place.name), list(place.of(leaf).shape)
            if list(stored.shape(place.name)) != right:
                found = f"{place.name} is {list(stored.shape(place.name))}"
                raise Mistake(f"{file}: {found}, config.json makes it {right}; take both from one")
            if stored.kind(place.name) not in KINDS:
                known = f"{place.name} is {stored.kind(place.name)}; use float32 or bfloat16"
                raise Mistake(f"{file}: {known}")
            left.discard(place.name)
    if left:
        name = min(left)
        said = f"{name} has no place in the model of config.json"
        raise Mistake(f"{stored.file(name)}: {said}; take both from one model")


def _leaf(stored: Stored, shape: tuple[int, ...], places: list[Place], kind: np.dtype) -> jax.Array:
    whole = np.empty(shape, kind)
    for place in places:
        place.of(whole)[...] = stored.read(place.name)
    return jnp.asarray(whole)


def write_weights(folder: Path, model: LanguageModel, shard: int) -> None:
    """All tensors, dealt out to files of at most ``shard`` bytes."""
    names: list[list[Place]] = [[]]
    sizes = [0]
    all_places = list(families.places(families.plan_of(model)))
    for place in all_places:
        size = _size(model, place)
        if sizes[-1] and sizes[-1] + size > shard:
            names.append([])
            sizes.append(0)
        names[-1].append(place)
        sizes[-1] += size
    files = [WEIGHTS]
    if len(names) > 1:
        digits = range(1, len(names) + 1)
        files = [f"model-{number:05d}-of-{len(names):05d}.safetensors" for number in digits]
        table = {
            place.name: file for file, each in zip(files, names, strict=True) for place in each
        }
        write_json(folder / INDEX, {"metadata": {"total_size": sum(sizes)}, "weight_map": table})
    for file, part in zip(files, names, strict=True):
        made: dict[str, np.ndarray] = {}
        for key, each in groupby(part, _path):
            leaf = _on_host(_at(model, key))
            made |= {place.name: np.ascontiguousarray(place.of(leaf)) for place in each}
        save_file(made, folder / file, {"format": "pt"})


def _size(model: LanguageModel, place: Place) -> int:
    leaf = _at(model, place.path)
    blank = np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return place.of(blank).size * leaf.dtype.itemsize


def _at(model: LanguageModel, path: tuple[str, ...]) -> jax.Array:
    found: Any = reduce(getattr, path, model)
    return found


def _on_host(leaf: jax.Array) -> np.ndarray:
    """A leaf as NumPy sees it, without a copy that stays with an array elsewhere."""
    return np.asarray(jax.device_put(leaf, jax.local_devices(backend="cpu")[0]))


def _path(place: Place) -> tuple[str, ...]:
    return place.path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Named values as JSON that people can read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
