"""Read and write model weights as safetensors files, one file or several, tensor by tensor.

So little more memory is needed than the model itself takes.
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

from sterling.language.models import lora, model_families
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.model_families import ModelPlan
from sterling.language.models.tensor_places import TensorPlace, tensor_places
from sterling.language.tokenizer import read_json
from sterling.system.mistake import Mistake
from sterling.system.terminal_messages import print_notice

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"F32": jnp.float32, "BF16": jnp.bfloat16, "F16": jnp.float16}
MAX_FILE_BYTES = 5_000_000_000  # of one file of weights, by default


class StoredTensors:
    """The tensors of a checkpoint, in one file or several; a tensor is read when it is asked
    for."""

    def __init__(self, files: Mapping[Path, Any]):
        self._files = {
            name: (path, file) for path, file in files.items() for name in list(file.keys())
        }

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._files)

    def file(self, name: str) -> Path:
        """Return the file that holds a tensor."""
        return self._files[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape."""
        return tuple(self._files[name][1].get_slice(name).get_shape())

    def dtype_name(self, name: str) -> str:
        """Return a tensor's dtype by safetensors' name for it, such as "F32"."""
        return str(self._files[name][1].get_slice(name).get_dtype())

    def read(self, name: str) -> np.ndarray:
        """Read a tensor."""
        return self._files[name][1].get_tensor(name)


def open_safetensors(path: Path, stack: contextlib.ExitStack) -> Any:
    """Open one safetensors file. Raises :class:`Mistake` if it is missing or damaged."""
    if not path.is_file():
        raise Mistake(f"{path} is missing; copy the whole folder again")
    try:
        return stack.enter_context(safetensors.safe_open(path, "numpy"))
    except safetensors.SafetensorError as error:
        raise Mistake(f"{path} is damaged ({error}); copy it again") from error


def open_checkpoint(path: Path, stack: contextlib.ExitStack) -> StoredTensors:
    """Open all files of weights in a folder."""
    if (path / WEIGHTS_FILE).is_file() or not (path / INDEX_FILE).is_file():
        if not (path / WEIGHTS_FILE).is_file() and list(path.glob("pytorch_model*.bin")):
            remedy = "save it once with transformers"
            raise Mistake(f"{path} holds its weights as pickles, not as safetensors; {remedy}")
        return StoredTensors({path / WEIGHTS_FILE: open_safetensors(path / WEIGHTS_FILE, stack)})
    index = read_json(path / INDEX_FILE).get("weight_map")
    if not isinstance(index, dict) or not all(
        isinstance(name, str) and name and Path(name).name == name for name in index.values()
    ):
        raise Mistake(
            f"{path / INDEX_FILE} has no weight_map that names files in its folder; copy it again"
        )
    names = sorted(set(index.values()))
    stored = StoredTensors({path / name: open_safetensors(path / name, stack) for name in names})
    for tensor, name in index.items():
        if tensor not in stored or stored.file(tensor).name != name:
            raise Mistake(
                f"{path / name} lacks {tensor}, which {INDEX_FILE} puts there; copy it again"
            )
    return stored


def fill_model(
    stored: StoredTensors, plan: ModelPlan, path: Path, dtype: DTypeLike | None, origin: str
) -> LanguageModel:
    """Return the model with its weights read from ``stored``, leaf by leaf, once all names and
    shapes are checked. A head that differs from the embedding is kept, with a line that says so,
    even if config.json says that it is tied."""
    if plan.tied and _has_own_head(stored):
        print_notice(
            f"{path}: config.json says tie_word_embeddings, but lm_head.weight differs from the "
            "embedding: the model is loaded with its own head"
        )
        plan = dataclasses.replace(plan, tied=False)
    make = jax.eval_shape(lambda: blank_model(plan, origin))
    leaves, structure = jax.tree_util.tree_flatten_with_path(make)
    shapes = {tuple(key.name for key in keys): leaf.shape for keys, leaf in leaves}
    by_leaf = {key: list(each) for key, each in groupby(tensor_places(plan), _leaf_path)}
    _check_tensors(stored, shapes, by_leaf, path, plan.tied)
    first = stored.dtype_name(EMBEDDING)
    kind = np.dtype(DTYPES[first] if dtype is None else dtype)
    if kind not in map(np.dtype, DTYPES.values()):
        raise Mistake(f"weights of type {kind} are not supported; use float32, bfloat16 or float16")
    filled = [_read_leaf(stored, shapes[key], by_leaf[key], kind) for key in shapes]
    return jax.tree.unflatten(structure, filled)


def blank_model(plan: ModelPlan, origin: str) -> LanguageModel:
    """Return a model of this plan with weights that do not matter."""
    model = LanguageModel.create(
        *(jax.random.key(0), plan.vocabulary, plan.width, plan.form, plan.layers),
        tied=plan.tied,
    )
    return dataclasses.replace(model, origin=origin)


def with_dtype(model: LanguageModel, dtype: DTypeLike) -> LanguageModel:
    """Return the model with its weights in another dtype; LoRA adapters keep theirs."""
    if not lora.adapted_linears(model):
        return jax.tree.map(lambda x: x.astype(dtype), model)
    learned, fixed = lora.split_trainable(model)
    return lora.join_trainable(learned, jax.tree.map(lambda x: x.astype(dtype), fixed))


def _has_own_head(stored: StoredTensors) -> bool:
    """Whether there is a head that is no copy of the embedding."""
    if not (HEAD in stored and EMBEDDING in stored):
        return False
    if not {stored.dtype_name(HEAD), stored.dtype_name(EMBEDDING)} <= set(DTYPES):
        return False  # refused later
    head, embedding = stored.read(HEAD), stored.read(EMBEDDING)
    return not np.array_equal(head, embedding)


def _check_tensors(
    stored: StoredTensors,
    shapes: dict[tuple[str, ...], tuple[int, ...]],
    by_leaf: dict[tuple[str, ...], list[TensorPlace]],
    path: Path,
    tied: bool,
) -> None:
    """Raise :class:`Mistake` unless the files hold exactly the tensors that config.json
    describes."""
    spare = {name for name in stored.names if name.endswith(".rotary_emb.inv_freq")}
    spare |= {HEAD} if tied else set()  # a copy of the embedding
    unplaced = stored.names - spare
    for key, places in by_leaf.items():
        leaf = np.broadcast_to(np.zeros(()), shapes[key])  # takes no memory
        for place in places:
            if place.name not in stored:
                raise Mistake(f"{path} has no tensor {place.name}; copy its weights again")
            file, right = stored.file(place.name), list(place.view(leaf).shape)
            if list(stored.shape(place.name)) != right:
                found = f"{place.name} has shape {list(stored.shape(place.name))}"
                raise Mistake(
                    f"{file}: {found}, but config.json states {right}; take both from one model"
                )
            if stored.dtype_name(place.name) not in DTYPES:
                known = f"{place.name} is {stored.dtype_name(place.name)}; use float32 or bfloat16"
                raise Mistake(f"{file}: {known}")
            unplaced.discard(place.name)
    if unplaced:
        name = min(unplaced)
        detail = f"{name} has no place in the model that config.json describes"
        raise Mistake(f"{stored.file(name)}: {detail}; take both from one model")


def _read_leaf(
    stored: StoredTensors, shape: tuple[int, ...], places: list[TensorPlace], kind: np.dtype
) -> jax.Array:
    whole = np.empty(shape, kind)
    for place in places:
        place.view(whole)[...] = stored.read(place.name)
    return jnp.asarray(whole)


def write_weights(folder: Path, model: LanguageModel, shard: int) -> None:
    """Write all tensors into files of at most ``shard`` bytes each."""
    names: list[list[TensorPlace]] = [[]]
    sizes = [0]
    all_places = list(tensor_places(model_families.plan_of_model(model)))
    for place in all_places:
        size = _tensor_bytes(model, place)
        if sizes[-1] and sizes[-1] + size > shard:
            names.append([])
            sizes.append(0)
        names[-1].append(place)
        sizes[-1] += size
    files = [WEIGHTS_FILE]
    if len(names) > 1:
        digits = range(1, len(names) + 1)
        files = [f"model-{number:05d}-of-{len(names):05d}.safetensors" for number in digits]
        table = {
            place.name: file for file, each in zip(files, names, strict=True) for place in each
        }
        write_json(
            folder / INDEX_FILE, {"metadata": {"total_size": sum(sizes)}, "weight_map": table}
        )
    for file, part in zip(files, names, strict=True):
        made: dict[str, np.ndarray] = {}
        for key, each in groupby(part, _leaf_path):
            leaf = _to_host(_leaf_at(model, key))
            made |= {place.name: np.ascontiguousarray(place.view(leaf)) for place in each}
        save_file(made, folder / file, {"format": "pt"})


def _tensor_bytes(model: LanguageModel, place: TensorPlace) -> int:
    leaf = _leaf_at(model, place.path)
    blank = np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return place.view(blank).size * leaf.dtype.itemsize


def _leaf_at(model: LanguageModel, path: tuple[str, ...]) -> jax.Array:
    found: Any = reduce(getattr, path, model)
    return found


def _to_host(leaf: jax.Array) -> np.ndarray:
    """Copy a leaf to a NumPy array. ``np.asarray`` alone would keep the copy as long as the
    leaf."""
    return np.asarray(jax.device_put(leaf, jax.local_devices(backend="cpu")[0]))


def _leaf_path(place: TensorPlace) -> tuple[str, ...]:
    return place.path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write named values as indented JSON."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
