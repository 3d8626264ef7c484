"""Carry out one small run of a kind, or go on with it; may kill itself at a write of a file.

    python kinds.py KIND FOLDER LOG [COUNT]

With COUNT the process sends itself SIGKILL at its COUNTth write: each time a file or a folder is
brought to the disk, renamed or cut, and each time a line is added, the process may die just before.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROLLOUTS = {"length": 16, "minibatch": 64, "epochs": 1, "width": 8, "preset": False}
REPLAY = {"batch": 16, "width": 8, "warmup": 64, "collect": 8, "learn": 4, "preset": False}
OFTEN = {"checkpoint_minutes": 0.0, "evaluate_episodes": 2}
SPOKEN = {"slots": 4, "checkpoint_minutes": 0.0, "evaluate_episodes": 4, "log_every": 1}
TUNED = {"lr": "1e-4..1e-1:log", "clip": "0.1..0.4"}


def _train(algorithm: str, world: str | None, path: Path, **options: Any) -> None:
    import sterling

    if (path / "config.json").exists():
        sterling.resume(path)
    else:
        sterling.train(algorithm, world, out=path, **options)


def ppo(path: Path, log: Path) -> None:
    """Train or resume PPO on an exact world."""
    _train("ppo", "probe:both", path, steps=1280, seeds=2, log_every=128, **ROLLOUTS, **OFTEN)


def processes(path: Path, log: Path) -> None:
    """Train or resume PPO with each seed in a process of its own."""
    own = {"strategy": "processes", "log_every": 128, **ROLLOUTS, **OFTEN}
    _train("ppo", "probe:both", path, steps=1280, seeds=2, **own)


def dqn(path: Path, log: Path) -> None:
    """Train or resume DQN with its replay."""
    _train("dqn", "probe:both", path, steps=1024, log_every=128, **REPLAY, **OFTEN)


def sac(path: Path, log: Path) -> None:
    """Train or resume SAC with its replay."""
    _train("sac", "probe:both-continuous", path, steps=1024, log_every=128, **REPLAY, **OFTEN)


def offline(path: Path, log: Path) -> None:
    """Train or resume IQL from a log."""
    own = {"batch": 16, "width": 8, "preset": False, "log_every": 20, **OFTEN}
    _train("iql", None, path, data=log, updates=200, **own)


def fine_tuned(path: Path, log: Path) -> None:
    """Train or resume IQL from a log, then in the world."""
    own = {**REPLAY, "warmup": 0, "log_every": 32, **OFTEN}
    _train("iql", None, path, data=log, updates=128, steps=512, **own)


def sft(path: Path, log: Path) -> None:
    """Train or resume supervised fine-tuning."""
    _train("sft", "reverse-text", path, updates=6, batch=4, examples=16, model="nano", **SPOKEN)


def dpo(path: Path, log: Path) -> None:
    """Train or resume DPO."""
    _train("dpo", "reverse-text", path, updates=6, batch=4, examples=16, model="nano", **SPOKEN)


def grpo(path: Path, log: Path) -> None:
    """Train or resume GRPO."""
    own = {"prompts": 2, "group": 2, "limit": 8, "model": "nano", **SPOKEN}
    _train("grpo", "reverse-text", path, updates=5, **own)


def tuned(path: Path, log: Path) -> None:
    """Begin or resume a tuning study."""
    from sterling.tuning import resume, tune

    if (path / "study.json").exists():
        resume(path, workers=1)
        return
    own = {**ROLLOUTS, "log_every": 128}
    given = {"steps": 512, "seeds": 2, "test_seeds": 2, "trials": 4, "workers": 1}
    tune("ppo", "probe:both", out=path, search="random", space=TUNED, **given, **own)


def compared(path: Path, log: Path) -> None:
    """Begin or resume a comparison that trains until it is decided."""
    from sterling.training.until_decided.train_until_decided import (
        Contender,
        Question,
        until_decided,
    )

    fields = {name: value for name, value in ROLLOUTS.items() if name != "preset"}
    sides = [Contender(name, "ppo", {**fields, "lr": lr}) for name, lr in (("a", 1e-2), ("b", 0.0))]
    options = {"evaluate_episodes": 2, "preset": False, "checkpoint_minutes": 0.0}
    asked = {"steps": 512, "max_seeds": 6, "per_look": 3, "options": options}
    until_decided(Question(tuple(sides), "probe:both", **asked), path)


def made(path: Path, log: Path) -> None:
    """Make a dataset with an agent that is trained for it."""
    from sterling.data_generation.dataset_order import DatasetOrder
    from sterling.data_generation.make_dataset import make_dataset

    out = path / "data"
    if not out.exists():
        make_dataset(DatasetOrder("CartPole-v1", "medium", 500, steps=20_000), out, path / "agents")


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "ppo": ppo,
    "processes": processes,
    "dqn": dqn,
    "sac": sac,
    "offline": offline,
    "offline then online": fine_tuned,
    "sft": sft,
    "dpo": dpo,
    "grpo": grpo,
    "tune": tuned,
    "compare": compared,
    "data make": made,
}


def die_at(count: int) -> None:
    """Arrange that the ``count``th write of this process is its end."""
    left = [count]

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def either(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return write(*given, **named)

        return either

    for module, name in ((os, "fsync"), (os, "truncate"), (os, "replace"), (os, "rename")):
        setattr(module, name, dying(getattr(module, name)))
    for name in ("replace", "rename", "unlink", "write_text", "mkdir"):
        setattr(pathlib.Path, name, dying(getattr(pathlib.Path, name)))
    from sterling.report.live.metric_sinks import MetricsFile

    MetricsFile.write = dying(MetricsFile.write)  # type: ignore[method-assign]


def outcome(kind: str, path: Path) -> Any:
    """What a finished run came to, without clock times; equal runs give equal values."""
    if kind == "data make":
        from sterling.data import Dataset

        return Dataset(path / "data").hash
    if kind == "compare":
        return json.loads((path / "decision.json").read_text())
    if kind == "tune":
        lines = [json.loads(text) for text in (path / "trials.jsonl").read_text().splitlines()]
        return sorted((line["id"], line["returns"], line["scores"]) for line in lines)
    rows = [json.loads(text) for text in (path / "metrics.jsonl").read_text().splitlines()]
    timeless = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]
    return timeless, json.loads((path / "result.json").read_text())["final"], _tensors(path)


def _tensors(path: Path) -> str:
    """The checksum of the last checkpoint's leaves."""
    from sterling.training.saving import checkpoint

    newest = checkpoint.latest_checkpoint(path / "checkpoints")
    assert newest is not None
    return str([(e["name"], e["sha256"]) for e in checkpoint.read_meta(newest)["leaves"]])


def main() -> None:
    """Carry out the kind of run that the command line names."""
    kind, path, log, *count = sys.argv[1:]
    if count:
        die_at(int(count[0]))
    from sterling.training.runtime.compilation import enable_compilation_cache

    enable_compilation_cache()
    KINDS[kind](Path(path), Path(log))


if __name__ == "__main__":
    main()
