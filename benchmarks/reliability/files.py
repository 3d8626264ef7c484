"""Valid files of each kind that the campaign damages, and who reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Made = dict[str, Path]
RUN = {"algorithm": "ppo", "environment": "CartPole-v1", "steps": 9999, "seeds": [0]}
SIDES = ("a", "b")  # of the comparison
RATES = (1e-3, 1e-4)  # their step sizes
SEEDS = 5  # of each


def _data(root: Path) -> Made:
    from sterling.data_generation.dataset_order import DatasetOrder
    from sterling.data_generation.make_dataset import make_dataset

    data = make_dataset(DatasetOrder("CartPole-v1", "random", 300), root / "own")
    made = {"own format": root / "own"}
    for name, format_ in (("log.npz", "npz"), ("log.hdf5", "d4rl"), ("minari", "minari")):
        made[format_] = data.save(root / name, format_)
    return made


def _checkpoints(root: Path) -> Made:
    from sterling.training.saving import checkpoint

    tree = {"x": np.arange(50.0), "y": np.ones((3, 4), np.float32)}
    for step in (1, 2):
        checkpoint.save(root / "checkpoints", step, tree, {"alive": [True], "step": step})
    return {"checkpoint": root / "checkpoints"}


def _texts(root: Path) -> Made:
    lines = [
        {"prompt": f"question {i}", "chosen": f"right {i}", "rejected": f"wrong {i}"}
        for i in range(20)
    ]
    path = root / "texts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"jsonl": path}


def _finished(path: Path, seeds: list[int], scores: list[float], rows: list[Any]) -> Path:
    """A run's folder with what is read of it where nobody acts."""
    from sterling.training.saving import run_folder

    path.mkdir(parents=True)
    facts = {**RUN, "seeds": seeds}
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_folder.write_config(path, {**facts, "config": {"minibatch": 64}, "envs": 8})
    spent = {"failed_seeds": [], "failures": {}, "world_failures": [], "wall_seconds": 2.0}
    final = {"final": {"return": {"per_seed": scores}}, "unended": [0] * len(seeds)}
    run_folder.write_result(path, {**facts, **spent, "compile_seconds": 1.0, **final})
    return path


def _run(root: Path) -> Made:
    row = {"step": 5, "iteration": 1, "data/return": [1]}
    return {"run": _finished(root / "run", [0], [1.0], [row])}


def _parts(root: Path) -> Made:
    """A run of four seeds in two processes, before it is put together."""
    path = root / "apart"
    for part in (0, 1):
        rows = [
            {
                **{"step": 64 * at, "iteration": at, "failed": [], "time/seconds": 1.0 * at},
                **{"time/steps_per_second": 9.0, "data/return": [float(at), None]},
            }
            for at in (1, 2, 3)
        ]
        rows[1]["evaluation/return"] = [1.0, 2.0]
        crash = ["environment 3: it broke"] if part else []
        own = _finished(path / "parts" / str(part), [part, part + 2], [1.0, 2.0], rows)
        result = json.loads((own / "result.json").read_text()) | {"world_failures": crash}
        (own / "result.json").write_text(json.dumps(result))
    return {"parts": path}


def _study(root: Path) -> Made:
    """A finished study of two trials."""
    from sterling.tuning import tune

    fixed: dict[str, Any] = {
        "length": 16,
        "minibatch": 64,
        "epochs": 1,
        "width": 8,
        "preset": False,
    }
    given: dict[str, Any] = {"steps": 512, "seeds": 1, "test_seeds": 1, "trials": 2, "workers": 1}
    space = {"lr": "1e-4..1e-1:log", "clip": "0.1..0.4"}
    tune("ppo", "probe:both", out=root / "study", space=space, log_every=128, **given, **fixed)
    return {"study": root / "study"}


def asked() -> Any:
    """The question of the comparison, whose answer needs no more training."""
    from sterling.training.until_decided.train_until_decided import Contender, Question

    sides = tuple(Contender(name, "ppo", {"lr": lr}) for name, lr in zip(SIDES, RATES, strict=True))
    return Question(sides, "CartPole-v1", 9999, max_seeds=SEEDS, per_look=SEEDS)


def _comparison(root: Path) -> Made:
    """A study of ``compare --until-decided`` that has taken its only look."""
    from dataclasses import asdict

    from sterling.training.saving import run_folder

    path = root / "comparison"
    for at, side in enumerate(SIDES):
        seeds = [1000 * at + seed for seed in range(SEEDS)]
        row = {"step": 5, "iteration": 1, "data/return": [1.0] * SEEDS}
        _finished(path / side / "00", seeds, [float(100 * at + seed) for seed in seeds], [row])
    run_folder.write_json(path / "question.json", json.loads(json.dumps(asdict(asked()))))
    return {"comparison": path}


WRITERS: dict[Callable[[Path], Made], tuple[str, ...]] = {
    _data: ("own format", "npz", "d4rl", "minari"),
    _checkpoints: ("checkpoint",),
    _texts: ("jsonl",),
    _run: ("run",),
    _parts: ("parts",),
    _study: ("study",),
    _comparison: ("comparison",),
}


def _read_dataset(path: Path) -> Any:
    from sterling.data import Dataset, check

    return check(Dataset(path))


def _read_checkpoint(path: Path) -> Any:
    from sterling.training.saving import checkpoint

    return checkpoint.newest_valid(path, warn=lambda line: None)


def _read_texts(path: Path) -> Any:
    from sterling.experience.language.answer_pairs import read_pairs

    return read_pairs(path)


def _read_run(path: Path) -> Any:
    from sterling.report.runs import read_runs
    from sterling.training.config.stored_settings import read_settings

    return read_runs.read_results([path]), read_settings(path)


def _read_parts(path: Path) -> Any:
    from sterling.report.runs.checked_run_files import check_part_result
    from sterling.training.processes.merge_results import MetricsMerger, merge_results
    from sterling.training.saving import run_folder

    parts = [path / "parts" / name for name in ("0", "1")]
    MetricsMerger(parts, [2, 2], []).go_on()
    results = []
    for part in parts:
        results.append(run_folder.read_result(part) or {})
        check_part_result(part / "result.json", results[-1], 2)
    return merge_results(results, 8, 1.0, None)


def _read_study(path: Path) -> Any:
    from sterling.tuning import stored_study, tuning_api

    lines = [stored_study.read_lines(path / name) for name in ("trials.jsonl", "test.jsonl")]
    return lines, tuning_api.open_study(path), tuning_api.resume(path)


def _read_comparison(path: Path) -> Any:
    from sterling.report.runs import read_runs
    from sterling.training.until_decided.train_until_decided import until_decided

    return read_runs.read_results([path]), until_decided(asked(), path)


READERS: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys(("own format", "npz", "d4rl", "minari"), _read_dataset),
    "checkpoint": _read_checkpoint,
    "jsonl": _read_texts,
    "run": _read_run,
    "parts": _read_parts,
    "study": _read_study,
    "comparison": _read_comparison,
}
