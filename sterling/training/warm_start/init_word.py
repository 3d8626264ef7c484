"""Resolve ``init``, what a user names as the start of a run: which file or checkpoint it is.

runs/earlier             the last checkpoint of a run
runs/earlier:seed=3      only the state of its seed 3, for all seeds
model.zip                a model of Stable-Baselines3
weights.safetensors      arrays by name
model.zip+statistics.pkl the same, with what its VecNormalize saved
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.training.config.run_options import InitSettings
from sterling.training.saving import checkpoint, run_folder
from sterling.training.saving.checkpoint_meta import checksum
from sterling.types import Mistake

MODEL_FILE, WEIGHTS_FILE = ".zip", ".safetensors"  # suffixes of the files that can be a start
STATISTICS_FILE = ".pkl"  # suffix of what a VecNormalize of Stable-Baselines3 saved
ONE_SEED = re.compile(r"(.+):seed=(-?\d+)")
WITH_STATISTICS = re.compile(r"(.+\.(?:zip|safetensors))\+(.+\.pkl)")


def resolve_init(word: str | os.PathLike[str] | None, seeds: Sequence[int]) -> InitSettings | None:
    """Return what a run of ``seeds`` starts from; None without a word.

    A seed starts from the run's seed of the same number if the run has all of ``seeds``; otherwise
    the seeds start from the run's in turn. Raise Mistake if there is no such run, seed or file.
    """
    if not word:
        return None
    text = str(word)
    if both := WITH_STATISTICS.fullmatch(text):
        return _resolve_files(Path(both[1]), Path(both[2]))
    one = ONE_SEED.fullmatch(text)
    path = Path(one[1] if one else text)
    if path.is_file():
        return _resolve_file(path, one is not None)
    if path.suffix in (MODEL_FILE, WEIGHTS_FILE, STATISTICS_FILE) and not path.exists():
        raise Mistake(f"init: there is no file {path}.")
    config = run_folder.read_config(path)
    if config.get("speech"):
        raise Mistake(f"{path} trained a language model. Use model={path} instead of init.")
    place, _ = checkpoint.read_arrays(run_folder.checkpoints_path(path), "agent/state")
    digest = checksum(checkpoint.read_meta(place))
    mapped = _map_seeds(path, seeds, _run_seeds(config), int(one[2]) if one else None)
    return InitSettings(str(path.resolve()), digest, place.name, mapped)


def read_run_arrays(init: InitSettings) -> dict[str, Any]:
    """Return the arrays of the checkpoint that a run starts from, by their names below
    ``agent/state``; raise Mistake if it is no longer the same."""
    place = run_folder.checkpoints_path(Path(init.path)) / init.checkpoint
    if not place.is_dir() or checksum(checkpoint.read_meta(place)) != init.hash:
        raise Mistake(f"{init.path} has no longer the checkpoint {init.checkpoint} from which this "
                      "run starts. Start a new run.")  # fmt: skip
    return checkpoint.read_arrays(place, "agent/state")[1]


def check_same_files(init: InitSettings) -> tuple[Path, Path | None]:
    """Return the paths of the file that a run starts from and of the statistics beside it; raise
    Mistake if one has changed."""
    path, statistics = Path(init.path), Path(init.statistics) if init.statistics else None
    for each, known in ((path, init.hash), (statistics, init.statistics_hash)):
        if each is not None and (not each.is_file() or _file_hash(each) != known):
            raise Mistake(f"{each} has changed since this run began. Restore it, or start a new "
                          "run.")  # fmt: skip
    return path, statistics


def _resolve_files(path: Path, statistics: Path) -> InitSettings:
    for each in (path, statistics):
        if not each.is_file():
            raise Mistake(f"there is no file {each}. init takes a model and what its VecNormalize "
                          "saved, as model.zip+vec_normalize.pkl.")  # fmt: skip
    found = str(statistics.resolve()), _file_hash(statistics)
    return InitSettings(str(path.resolve()), _file_hash(path), "", {}, *found)


def _resolve_file(path: Path, has_seed: bool) -> InitSettings:
    if path.suffix == STATISTICS_FILE:
        raise Mistake(f"{path} holds no networks. Give what VecNormalize saved after its model: "
                      f"model.zip+{path}.")  # fmt: skip
    if path.suffix not in (MODEL_FILE, WEIGHTS_FILE):
        raise Mistake(
            f"{path} cannot be the start of a run. Give a run's folder, a {MODEL_FILE} of "
            f"Stable-Baselines3, or a {WEIGHTS_FILE} file."
        )
    if has_seed:
        raise Mistake(f"{path} is a file, which has no seeds. Leave out :seed=N.")
    return InitSettings(str(path.resolve()), _file_hash(path))


def _run_seeds(config: dict[str, Any]) -> list[int]:
    seeds = config["seeds"]
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def _map_seeds(
    path: Path, seeds: Sequence[int], known: Sequence[int], one: int | None
) -> dict[str, int]:
    """Return the run's seed from which each of ``seeds`` starts (by text, as in JSON)."""
    if one is not None and one not in known:
        raise Mistake(f"{path} has no seed {one}; it has {', '.join(map(str, known))}.")
    if one is not None:
        return {str(seed): one for seed in seeds}
    if set(seeds) <= set(known):
        return {str(seed): seed for seed in seeds}
    return {str(seed): known[place % len(known)] for place, seed in enumerate(seeds)}


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
