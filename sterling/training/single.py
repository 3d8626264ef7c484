"""One run in this process: begin it or go on with it, evaluate it, write it down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.metrics import MetricsFile, Sink
from sterling.training import checkpoint, folder
from sterling.training.run import Driver, restored, stored
from sterling.training.settings import Settings, warmup_steps
from sterling.training.start import build
from sterling.training.trained import TrainedRun


def carry_on(settings: Settings, path: Path | None, sinks: Sequence[Sink]) -> TrainedRun:
    """Train to the end, from the folder's last checkpoint where there is one."""
    begun = path is not None and checkpoint.latest(folder.checkpoints(path)) is not None
    run = build(settings, warm=not begun)
    if path is None:
        return _finish(Driver(settings, run, None, sinks))
    with folder.lock(path):
        if not (path / "config.json").exists():
            folder.write_config(path, settings.to_json() | folder.environment_facts())
        meta = None
        if begun:
            saved, meta = checkpoint.load(folder.checkpoints(path), stored(run))
            run = restored(saved, run)
        file = MetricsFile(folder.metrics(path))
        driver = Driver(settings, run, path, [file, *sinks], meta)
        file.truncate(driver.step if begun else -1)
        return _finish(driver)


def _finish(driver: Driver) -> TrainedRun:
    """Run to the end, evaluate, write the result."""
    driver.go()
    settings = driver.settings
    run = TrainedRun(settings, driver.run.agent, _result(driver), driver.path)
    if settings.evaluate_episodes and driver.alive.any():
        run.result["final"] = run.evaluate(settings.evaluate_episodes)
    if driver.path is not None:
        folder.write_result(driver.path, run.result)
    for sink in driver.sinks:
        sink.close()
    driver.run.source.world.close()
    return run


def _result(driver: Driver) -> dict[str, Any]:
    """What ``result.json`` says, but for the final evaluation."""
    settings = driver.settings
    learned = (driver.step - warmup_steps(settings)) * len(settings.seeds)
    return {
        "algorithm": settings.algorithm,
        "environment": settings.name,
        "steps": driver.step,
        "seeds": list(settings.seeds),
        "final": {},
        "failed_seeds": [int(seed) for seed in driver.failures],
        "failures": driver.failures,
        "world_failures": _world_failures(driver.run.source.world),
        "wall_seconds": round(driver.seconds, 3),
        "compile_seconds": round(driver.compile_seconds, 3),
        "steps_per_second": round(learned / max(driver.seconds, 1e-9), 1),
    }


def _world_failures(world: Any) -> list[str]:
    """What went wrong in worlds on the host, one line each."""
    while hasattr(world, "world"):
        world = world.world
    return [f"environment {index}: {why}" for index, why in getattr(world, "failures", [])]
