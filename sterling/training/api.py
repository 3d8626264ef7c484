"""What a user calls: train and resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterling.report.metrics import Sink
from sterling.training import folder
from sterling.training.processes import train_apart
from sterling.training.settings import Settings, resolve
from sterling.training.single import carry_on
from sterling.training.start import remember_programs
from sterling.training.trained import TrainedRun, load

RUN_OPTIONS = (
    *("envs", "strategy", "preset", "env_options", "evaluate_episodes"),
    *("log_every", "checkpoint_minutes"),
)


def train(
    algorithm: str,
    environment: str | Callable[[], Any],
    *,
    steps: int,
    seeds: int | list[int] = 1,
    out: str | Path | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> TrainedRun:
    """Train ``algorithm`` on ``environment`` for ``steps`` environment steps per seed.

    Args:
        algorithm: a name from ``sterling list algorithms``.
        environment: a name (EnvPool, gymnax or Gymnasium), or a factory of Gymnasium environments.
        steps: environment steps per seed; the run takes as many whole iterations as fit.
        seeds: how many (0, 1, ...), or which.
        out: run folder to make; without one nothing is written.
        sinks: further takers of metrics rows.
        **options: ``envs`` (parallel environments per seed), ``strategy`` (map, vmap, processes),
            ``preset`` (use the tuned settings for this environment where there are some; default
            True), ``env_options``, ``evaluate_episodes`` (20), ``log_every`` (steps),
            ``checkpoint_minutes`` (5), and every field of the algorithm's Config.

    Raises:
        Mistake: wrong use, in one line.
        SystemExit: code 75 after SIGTERM or Ctrl-C, when the run has been saved.
    """
    known = {name: options.pop(name) for name in RUN_OPTIONS if name in options}
    settings = resolve(algorithm, environment, steps=steps, seeds=seeds, fields=options, **known)
    remember_programs()
    if out is None:
        return _go(settings, None, sinks)
    path = folder.create(out)
    try:
        return _go(settings, path, sinks)
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()  # goes only where the run could not begin and nothing was written


def resume(
    path: str | Path,
    *,
    sinks: Sequence[Sink] = (),
    environment: Callable[[], Any] | None = None,
) -> TrainedRun:
    """Go on with a stopped run from its last checkpoint; a finished one is returned as it is.

    ``environment`` is needed again where the run was made with the user's own factory.
    """
    path = Path(path)
    settings = Settings.from_json(folder.read_config(path), environment)
    remember_programs()
    if folder.read_result(path) is not None:
        return load(path, environment=environment)
    return _go(settings, path, sinks)


def _go(settings: Settings, path: Path | None, sinks: Sequence[Sink]) -> TrainedRun:
    go = train_apart if settings.strategy == "processes" else carry_on
    run = go(settings, path, sinks)
    if path is not None:
        from sterling.report.curve import draw  # matplotlib is slow to import

        draw(path)
    return run


__all__ = ["RUN_OPTIONS", "TrainedRun", "load", "resume", "train"]
