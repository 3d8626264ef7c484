"""RLDS: episodes as TensorFlow Datasets keeps them, in record files beside ``features.json``.

A step is what was seen and what was done there. By the format's rule the last step only shows where
the episode ended, and its action and reward mean nothing. Sets of robots often reward the done task
there all the same: where a last step is terminal and rewarded it is kept as a row, and its
successor, which is worth nothing, is a copy. An action of several parts becomes one vector. Text
and encoded pictures are left out, and a step's ``discount``: ``is_terminal`` says what ended.
Format: https://github.com/google-research/rlds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.columns import BLOCK, Arrays, Block, Stream, joined
from sterling.data.facts import Facts, Source
from sterling.data.formats import flat, tfrecord
from sterling.data.formats.opened import needed
from sterling.data.spaces import Space, extremes, guessed
from sterling.types import Mistake

FORMAT = "rlds"
FEATURES, INFO = "features.json", "dataset_info.json"
OBS, ACTION = "observation", "action"
KNOWN = ("reward", "discount", "is_first", "is_last", "is_terminal")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The numbers of one feature of a step."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    encoding: str = "none"  # or "bytes" or "zlib": each step's numbers are one string

    def array(self, values: Any, steps: int) -> np.ndarray:
        """The values of an episode, ``(step, ...)``; raises Mistake where there are not as many."""
        if isinstance(values, list):
            unpack = self._inflated if self.encoding == "zlib" else bytes
            values = np.frombuffer(b"".join(unpack(each) for each in values), self.dtype)
        if values.size != steps * math.prod(self.shape):
            raise Mistake(f"{values.size} numbers for {steps} steps of {self.shape}")
        kind = {"b": np.uint8, "f": np.float32}.get(self.dtype.kind, self.dtype)
        return values.astype(kind).reshape(steps, *self.shape)

    def _inflated(self, packed: bytes) -> bytes:
        """One step's numbers, and no more than there can be: little may unpack to a lot."""
        most = math.prod(self.shape) * self.dtype.itemsize
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(packed, most + 1)
        if len(found) > most or not unpacker.eof:
            raise Mistake(f"a step that is packed does not unpack to {most} bytes")
        return found


def recognises(path: Path) -> bool:
    """Whether it is the folder of one version of such a dataset."""
    return (path / FEATURES).is_file() and (path / INFO).is_file()


def read(path: Path, limit: int | None = None) -> Stream:
    """The folder as episodes, all splits end to end."""
    info = json.loads((path / INFO).read_text())
    if (kind := info.get("fileFormat", "tfrecord")) != "tfrecord":
        raise Mistake(f"it is kept as {kind}; write it anew with file_format='tfrecord'")
    files = sorted(path.glob("*.tfrecord*"))
    said: Any = json.loads((path / FEATURES).read_text())
    for key in ("featuresDict", "features", "steps", "sequence", "feature"):
        said = needed(said, [key])
    leaves = dict(_leaves(said))
    tensors = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    shown, done = (_below(tensors, part) for part in (OBS, ACTION))
    needed(tensors, ["is_terminal"])
    told = [name for name in (*done, "is_terminal", "reward") if name in tensors]
    low, high = extremes(_acted(files, {name: tensors[name] for name in told}, done, info))
    first = next((one for one in _episodes(files, tensors) if _steps(one)), None)
    if first is None:
        raise Mistake("there is no episode of any steps")
    columns = _columns(first, shown, done)
    obs = _obs_space({name: x for name, x in columns.items() if name.startswith("obs")})
    source = Source(f"{info['name']} {info['version']}", FORMAT, info.get("moduleName", ""))
    action = guessed(ACTION, columns["action"], low, high)
    facts = flat.assumed(Facts(sources=(source,)), action).noted(*_assumptions(leaves, done))
    size = sum(file.stat().st_size for file in files)
    return Stream(obs, action, facts, _blocks(files, tensors, shown, done), size)


def _leaves(feature: dict[str, Any], name: str = "") -> Iterator[tuple[str, Tensor | None]]:
    """Every feature below one, by its path; None where it holds no numbers of one shape."""
    if "featuresDict" in feature:
        for key, part in sorted(feature["featuresDict"]["features"].items()):
            yield from _leaves(part, f"{name}/{key}" if name else key)
    elif "classLabel" in feature:
        yield name, Tensor(np.dtype(np.int64), ())
    elif "tensor" in feature and feature["tensor"]["dtype"] != "string":
        said = feature["tensor"]
        shape = tuple(int(n) for n in said["shape"].get("dimensions", ()))
        known = Tensor(np.dtype(said["dtype"]), shape, said.get("encoding", "none"))
        yield name, None if -1 in shape else known
    else:
        yield name, None


def _below(tensors: dict[str, Tensor], part: str) -> list[str]:
    """The names of a part of a step, which may be one tensor or several."""
    found = [name for name in tensors if name == part or name.startswith(f"{part}/")]
    return found or [needed(tensors, [part])]


def _assumptions(leaves: dict[str, Tensor | None], done: Sequence[str]) -> Iterator[str]:
    """What had to be left out or made up."""
    left = [name for name, leaf in leaves.items() if leaf is None]
    if left:
        yield f"left out, not numbers: {', '.join(left)}"
    if len(done) > 1:
        yield f"the action is {', '.join(done)}, in this order"
    if "reward" not in leaves:
        yield "there are no rewards; they are zeros"
    else:
        yield "rewarded terminal last steps are rows; the observation after them is a copy"


def _episodes(files: Sequence[Path], tensors: dict[str, Tensor]) -> Iterator[Arrays]:
    """Every episode, one without steps too: feature -> ``(step, ...)``."""
    for file in files:
        for number, record in enumerate(tfrecord.records(file)):
            try:
                yield _episode(tfrecord.example(record), tensors)
            except Mistake as error:
                raise Mistake(f"{file.name}: episode {number}: {error}") from error


def _episode(found: dict[str, Any], tensors: dict[str, Tensor]) -> Arrays:
    steps = len(found.get("steps/is_terminal", ()))
    made = {}
    for name, tensor in tensors.items():
        values = needed(found, [f"steps/{name}"]) if steps else np.zeros(0)
        try:
            made[name] = tensor.array(values, steps)
        except (Mistake, ValueError, zlib.error) as error:
            raise Mistake(f"{name!r} does not fit what {FEATURES} says: {error}") from error
    early = np.flatnonzero(made.get("is_last", made["is_terminal"])[:-1])
    if len(early):
        raise Mistake(f"it goes on after step {early[0]}, which is marked as its last")
    return made


def _steps(episode: Arrays) -> int:
    return len(episode["is_terminal"])


def _acted(
    files: Sequence[Path], tensors: dict[str, Tensor], done: Sequence[str], info: dict[str, Any]
) -> Iterator[np.ndarray]:
    """The actions of every episode that mean something; Mistake where episodes are missing."""
    count = 0
    for steps in _episodes(files, tensors):
        count += 1
        if _steps(steps):
            columns = _columns(steps, (), done)
            kept = _steps(steps) - (not _is_rewarded(columns, bool(steps["is_terminal"][-1])))
            yield columns["action"][:kept]
    lengths = [int(n) for split in info.get("splits", ()) for n in split.get("shardLengths", ())]
    if count != sum(lengths):
        raise Mistake(f"there are {count} episodes where {INFO} speaks of {sum(lengths)}; fetch it")


def _columns(steps: Arrays, shown: Sequence[str], done: Sequence[str]) -> Arrays:
    """The steps under the names of columns."""
    lone = len(shown) == 1
    made = {"obs" + ("" if lone else name.removeprefix(OBS)): steps[name] for name in shown}
    count = _steps(steps)
    if len(done) == 1 and steps[done[0]].dtype.kind != "f":
        chosen = steps[done[0]]
        made["action"] = chosen.reshape(count) if chosen.shape[1:] == (1,) else chosen
    else:
        parts = [steps[name].reshape(count, -1).astype(np.float32) for name in done]
        made["action"] = np.concatenate(parts, 1)
    made["reward"] = steps.get("reward", np.zeros(count)).reshape(count).astype(np.float32)
    for name in sorted(steps.keys() - {*shown, *done, *KNOWN}):
        made["extra/" + name.replace("/", ".")] = steps[name]
    return made


def _is_rewarded(columns: Arrays, terminal: bool) -> bool:
    """Whether an episode's last step is a row, as its end is rewarded there."""
    return terminal and bool(columns["reward"][-1])


def _obs_space(columns: Arrays) -> Space:
    """A box, or a Dict with a Dict for every part of parts."""
    if list(columns) == ["obs"]:
        return guessed("obs", columns["obs"])
    whole: dict[str, Any] = {}
    for name, column in columns.items():
        *folders, leaf = name.split("/")[1:]
        place = whole
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = guessed("obs", column)
    return _nested(whole)


def _nested(parts: dict[str, Any]) -> Space:
    made = {key: _nested(x) if isinstance(x, dict) else x for key, x in parts.items()}
    return spaces.Dict(made)


def _blocks(
    files: Sequence[Path], tensors: dict[str, Tensor], shown: Sequence[str], done: Sequence[str]
) -> Iterator[Block]:
    """Whole episodes, about ``BLOCK`` rows at a time."""
    waiting: list[Block] = []
    for steps in _episodes(files, tensors):
        if not _steps(steps):
            continue
        made = _block(_columns(steps, shown, done), bool(steps["is_terminal"][-1]))
        if len(made.lengths):
            waiting.append(made)
        if sum(int(one.lengths[0]) for one in waiting) >= BLOCK:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def _block(columns: Arrays, terminal: bool) -> Block:
    """One episode."""
    last = len(columns["reward"]) - 1
    rewarded = _is_rewarded(columns, terminal)
    discount = np.ones(last + 1, np.float32)
    if terminal:
        discount[last if rewarded else max(last - 1, 0)] = 0.0
    obs = {name: x for name, x in columns.items() if name.startswith("obs")}
    rows = {name: x for name, x in columns.items() if name not in obs} | {"discount": discount}
    return flat.complete(obs, rows, np.array([last]), np.array([rewarded]))
