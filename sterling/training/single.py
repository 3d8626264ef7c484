"""One run in this process: begin it or go on with it, evaluate it, write it down."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.channels import Channel, described
from sterling.notice import say
from sterling.report.guarded import Guarded
from sterling.report.metrics import MetricsFile, Sink
from sterling.training import checkpoint, folder
from sterling.training.checkpoint_meta import is_of_run
from sterling.training.guard import NOTHING, Interrupt
from sterling.training.phase_results import phases_told, switch
from sterling.training.phases import counts_updates, last
from sterling.training.run import Driver
from sterling.training.settings import Settings
from sterling.training.trained import TrainedRun

AGAIN = "stopped before anything was learned; give the same command again"
BEGUN = "stopped before anything was learned; begin with: {}"
ON = "saved; go on with: {}"
UNSAVED = "final policies not saved: make room, then: {}"


def carry_on(settings: Settings, path: Path | None, sinks: Sequence[Sink]) -> TrainedRun:
    """Train to the end, from the folder's last checkpoint where there is one."""
    taken = Guarded(sinks)
    with Interrupt(leave=lambda: _left(path)):
        if path is None:
            return _finish(Driver(settings, None, [taken]))
        fits = functools.partial(is_of_run, seeds=len(settings.seeds))
        begun = checkpoint.newest_sound(folder.checkpoints(path), fits=fits)
        driver = Driver(settings, path, (), begun)  # raises before anything is written
        with folder.lock(path):
            _write_down(settings, path)
            file = MetricsFile(folder.metrics(path))
            file.truncate(-1 if begun is None else int(driver.run.iteration))
            driver.sinks = [file, taken]
            return _finish(driver)


def _left(path: Path | None) -> str:
    """What is left of a run that is stopped now, beside its iterations, and how it goes on."""
    if path is None:
        return NOTHING
    if checkpoint.latest(folder.checkpoints(path)):
        return ON.format(folder.resuming(path))
    return BEGUN.format(folder.resuming(path)) if (path / "config.json").exists() else AGAIN


def _write_down(settings: Settings, path: Path) -> None:
    """Make the folder a run's."""
    if settings.speech is not None:
        from sterling.training.begun import keep  # tokenizers take time to import

        keep(path, settings)
    if not (path / "config.json").exists():
        folder.write_config(path, settings.to_json() | folder.environment_facts())


def _finish(driver: Driver) -> TrainedRun:
    """Run to the end, evaluate, write the result."""
    driver.go()
    settings = driver.settings
    run = TrainedRun(last(settings), driver.run.agent, _result(driver), driver.path)
    if settings.evaluate_episodes and driver.alive.any():
        found = run.evaluate(settings.evaluate_episodes)
        run.result |= {"unended": found.pop("unended"), "final": found}
        lost = run.result["failed_seeds"]
        if settings.updates and driver.parts[-1].acts:
            run.result["switch"] = switch(driver.judged, settings, lost)
        if settings.phases:
            run.result |= phases_told(driver.judged, settings, run)
    if driver.path is not None:
        complete(driver.path, run.result, driver.saved)
    driver.close()
    return run


def complete(path: Path, result: dict[str, Any], saved: bool) -> None:
    """Write the result, with which a run is complete. One whose final policies are not ``saved``,
    or for whose result there is no room, can be resumed, which is said in one line."""
    if not saved:
        return say(UNSAVED.format(folder.resuming(path)))
    try:
        folder.write_result(path, result)
    except OSError as error:
        say(f"result not written ({error}): make room, then: {folder.resuming(path)}")


def _result(driver: Driver) -> dict[str, Any]:
    """What ``result.json`` says, but for the final evaluation."""
    settings = driver.settings
    lived = driver.step - sum(part.warmup for part in driver.parts)
    learned = lived * len(settings.seeds)
    made = driver.update * len(settings.seeds)
    seconds = max(driver.clock.seconds, 1e-9)
    counted = counts_updates(settings)
    of_log = {
        "updates": driver.update,
        "updates_per_second": round(made / seconds, 3),
        "data": None if settings.data is None else dataclasses.asdict(settings.data),
        **({} if settings.speech is None else {"model": settings.speech.model}),
    }
    return {
        "algorithm": settings.title,
        "environment": last(settings).name,
        "steps": driver.step,
        **(of_log if counted else {}),
        "seeds": list(settings.seeds),
        "final": {},
        "unended": [0] * len(settings.seeds),  # episodes of the final evaluation, for each seed
        **({"channels": described(channels)} if (channels := _channels(driver.run.source)) else {}),
        "failed_seeds": [int(seed) for seed in driver.failures],
        "failures": driver.failures,
        "world_failures": _world_failures(driver.run.source),
        "wall_seconds": round(driver.clock.seconds, 3),
        "compile_seconds": round(driver.clock.compile_seconds, 3),
        **({} if counted else {"steps_per_second": round(learned / seconds, 3)}),
    }


def _channels(source: Any) -> dict[str, Channel]:
    """What the world of a source reports beside the reward; worlds of text have no spec."""
    specs = [world.spec for world in source.worlds if hasattr(world, "spec")]
    return specs[0].channels if specs else {}


def _world_failures(source: Any) -> list[str]:
    """What went wrong in worlds on the host, one line each."""
    return [line for world in source.worlds for line in _failures_of(world)]


def _failures_of(world: Any) -> list[str]:
    while not hasattr(world, "failures") and hasattr(world, "world"):
        world = world.world
    return [f"environment {index}: {why}" for index, why in getattr(world, "failures", [])]
