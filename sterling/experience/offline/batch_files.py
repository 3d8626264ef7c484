"""Files of a run's batches, one a batch: ``000000.safetensors`` and so on.

A file has the arrays of a record by their names, and the named rewards of every turn
(``reward/NAME``).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from sterling.experience.language import raw_rewards
from sterling.experience.language.raw_rewards import RawRewards
from sterling.language.named_rewards import RewardRule
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.atomic_files import atomic_write
from sterling.types import Mistake, Record

RECORD_FIELDS = ("obs", "action", "reward", "discount", "last", "mask")
HELD_OUT = "held_out"  # key in a file's metadata
TERMS = "extras.part"  # terms of another run's rule: a replay makes those of its own


def read_held_out(folder: Path) -> float:
    """Read which share of the questions the run that wrote a folder held out; 0 if it does not
    say."""
    for path in sorted(folder.glob("*.safetensors"))[:1]:
        with contextlib.suppress(SafetensorError), safe_open(path, "numpy") as file:
            return float((file.metadata() or {}).get(HELD_OUT, 0.0))
    return 0.0


def write_batch(
    path: Path, batch: Record, held_out: float = 0.0, raw: RawRewards | None = None
) -> None:
    """Write a batch atomically; with ``raw`` its named rewards, too."""
    arrays = {name: np.asarray(getattr(batch, name)) for name in RECORD_FIELDS}
    extras = dict(batch.extras)
    arrays |= raw.to_file(extras.pop("named")) if raw is not None else {}
    arrays |= {f"extras.{name}": np.asarray(x) for name, x in extras.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        save_file(arrays, partial, {HELD_OUT: repr(held_out)})


def check_folder(folder: Path) -> None:
    """Raise Mistake for a folder that does not exist, with the nearest name beside it."""
    if not folder.is_dir():
        near = did_you_mean(
            folder.name, [each.name for each in folder.absolute().parent.glob("*/")]
        )
        raise Mistake(f"folder {folder} does not exist{near}")


def read_batch(path: Path, rule: RewardRule | None = None, raw: RawRewards | None = None) -> Record:
    """Read a batch from its file; Mistake if it is missing or damaged. A ``rule`` other than ""
    combines its named rewards anew; with ``raw`` they are among the extras."""
    check_folder(path.parent)
    if not path.is_file():
        raise Mistake(f"{path.parent} has no batch {path.name}; ask for fewer updates")
    try:
        arrays = load_file(path)
    except SafetensorError as error:
        raise Mistake(f"{path} is damaged ({error}); record the run again") from error
    missing = [name for name in RECORD_FIELDS if name not in arrays]
    if missing:
        raise Mistake(f"{path} is not a recorded batch: it lacks {', '.join(missing)}")
    extras = {
        name.removeprefix("extras."): jnp.asarray(x)
        for name, x in arrays.items()
        if name.startswith("extras.") and name != TERMS
    }
    if "cut" not in extras:  # files from before ``cut`` was recorded beside the discount
        ends = arrays["last"] & (arrays["discount"] > 0.0)
        extras["cut"] = jnp.asarray(ends.any(-1))
    if "right" not in extras:  # files from before ``right`` was recorded beside the score
        extras["right"] = extras["score"] >= 1.0
    added = {"rows_before": "group", "version": "turn", "temperature": "log_prob"}
    extras = {name: jnp.zeros_like(extras[like]) for name, like in added.items()} | extras
    whole: dict[str, Any] = {name: jnp.asarray(arrays[name]) for name in RECORD_FIELDS}
    stored = raw_rewards.split_raw(arrays)
    if raw is not None:
        extras["named"] = jnp.asarray(raw.from_file(stored, *arrays["mask"].shape[:2]))
    batch = Record(next_obs=None, extras=extras, **whole)
    return raw_rewards.combine(batch, stored, rule) if rule and rule.text else batch
