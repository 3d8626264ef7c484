"""Run folders to report on, made in a moment."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from sterling.report.pairwise_contest import compare_on_environments
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results


def write_run(
    folder: Path,
    algorithm: str,
    scores: Sequence[float | None],
    *,
    environment: str = "Hopper-v5",
    seeds: Sequence[int] | None = None,
    rows: int = 20,
    steps: int = 1000,
    finished: bool = True,
    settings: dict | None = None,
    within: tuple[float, float] | None = None,
    **more: object,
) -> Path:
    """A run whose curves rise to ``scores``; None is a seed that failed half way. ``more``: of its
    config.json."""
    folder.mkdir(parents=True)
    seeds = list(seeds or range(len(scores)))
    config = {
        "algorithm": algorithm,
        "environment": environment,
        "steps": steps,
        "seeds": seeds,
        "envs": 2,
        "config": {"lr": 0.001} | (settings or {}),
        "versions": {"sterling": "0.1.0", "jax": "0.10.2"},
        "hardware": {"cpu": "a cpu", "cores": 2, "memory": 2**34, "devices": ["cpu"]},
        "git": {"commit": "0123456789", "dirty": True},
        **more,
    }
    (folder / "config.json").write_text(json.dumps(config))
    gone = [seed for seed, score in zip(seeds, scores, strict=True) if score is None]
    lines = []
    for row in range(rows):
        late = row >= rows // 2
        values = [
            (None if late else 1.0) if score is None else score * (row + 1) / rows
            for score in scores
        ]
        step = (row + 1) * steps // 20
        lines.append({"step": step, "data/return": values, "failed": gone if late else []})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        final: dict = {"return": {"per_seed": list(scores)}}
        final["return"] |= {"within": within} if within else {}
        facts = {"algorithm": algorithm, "environment": environment, "steps": steps, "seeds": seeds}
        facts |= {"final": final, "failed_seeds": gone, "wall_seconds": 12.0}
        facts |= {"steps_per_second": 1000.0}
        (folder / "result.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """``run(name, algorithm, scores, ...)`` makes a run folder and gives its path."""
    return lambda name, *rest, **options: write_run(tmp_path / name, *rest, **options)


@pytest.fixture
def spread() -> Callable[[float, int], list[float]]:
    """``spread(mean, n)``: n scores around a mean, always the same."""
    return lambda mean, n=5: (mean + np.linspace(-1.0, 1.0, n) * 0.1 * abs(mean)).tolist()


@pytest.fixture
def held(run):
    """``held(sac=[...], ppo=[...], failed=...)``: the only contest between these scores."""

    def hold(failed=None, alpha=0.05, about="tendency", within=None, **scores):
        folders = [run(name, name, values) for name, values in scores.items()]
        groups = group_results(read_results(folders)[0])[0]
        (one,) = compare_on_environments(
            groups, alpha=alpha, failed=failed, about=about, within=within
        )
        return one

    return hold
