"""A log of HalfCheetah's shapes, of chance: only its size matters for speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LENGTH, OBS, ACTION = 1_000, 17, 6


def columns(rows: int) -> dict[str, np.ndarray]:
    """Flat arrays; every episode of 1,000 steps is cut."""
    random = np.random.default_rng(0)
    timeouts = np.zeros(rows, np.float32)
    timeouts[LENGTH - 1 :: LENGTH] = 1.0
    return {
        "observations": random.normal(size=(rows, OBS)).astype(np.float32),
        "actions": random.uniform(-0.9, 0.9, (rows, ACTION)).astype(np.float32),
        "rewards": random.normal(size=rows).astype(np.float32),
        "terminals": np.zeros(rows, np.float32),
        "timeouts": timeouts,
    }


def written(rows: int) -> str:
    """The same log as a dataset of ours, in the current folder; made once."""
    from sterling.data.file_conversion import convert_files

    path, flat = Path(f"log-{rows}"), Path(f"log-{rows}.npz")
    if not path.exists():
        np.savez(flat, **columns(rows))
        convert_files([flat], path)
        flat.unlink()
    return str(path)
