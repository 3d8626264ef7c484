"""Train one run in this process: begin or resume it, evaluate it, write its result."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from sterling.nets.encoding.encoder_description import NOTE, describe_observations
from sterling.problem.channels import Channel, channels_to_json
from sterling.report.live.guarded_sinks import GuardedSinks
from sterling.report.live.metric_sinks import MetricsFile, Sink
from sterling.system.terminal_messages import checks_passed, print_notice
from sterling.training.config.settings import Settings
from sterling.training.driver import Driver
from sterling.training.evaluation.metric_rows import unjudged_answers
from sterling.training.evaluation.teacher_comparison import teacher_comparison
from sterling.training.phases.phase_results import results_by_phase, switch_cost
from sterling.training.phases.phase_sequence import counts_updates, last_phase
from sterling.training.runtime.signals import NOTHING_KEPT, Interrupt
from sterling.training.saving import checkpoint, run_folder
from sterling.training.saving.checkpoint_meta import is_run_meta
from sterling.training.steering.best_result import best_result
from sterling.training.steering.process_agreement import ProcessAgreement
from sterling.training.trained_run import TrainedRun

REPEAT_MESSAGE = "stopped before the first iteration; run the same command again"
BEGIN_MESSAGE = "stopped before the first iteration; begin with: {}"
RESUME_MESSAGE = "saved; resume with: {}"
UNSAVED_MESSAGE = "the final policies were not saved: free disk space, then: {}"


def train_in_process(
    settings: Settings,
    path: Path | None,
    sinks: Sequence[Sink],
    callbacks: Sequence[Any] = (),
    agreement: ProcessAgreement | None = None,
) -> TrainedRun:
    """Train to the end, from the folder's newest checkpoint if there is one. ``agreement``: with
    the other processes, if this one trains some of the run's seeds."""
    steered: dict[str, Any] = {"callbacks": callbacks, "agreement": agreement}
    guarded = GuardedSinks(sinks)
    with Interrupt(leave=lambda: _stop_message(path)):
        if path is None:
            driver = Driver(settings, None, [guarded], **steered)
            lines = describe_observations(driver.run.agent.state)
            show_observations([*lines, *picture_speed_lines(settings, lines)], guarded)
            return _finish(driver)
        fits = functools.partial(is_run_meta, seeds=len(settings.seeds))
        newest = checkpoint.newest_valid(run_folder.checkpoints_path(path), fits=fits)
        driver = Driver(settings, path, (), newest, **steered)  # raises before anything is written
        with run_folder.lock(path):
            lines = describe_observations(driver.run.agent.state)
            _write_config(settings, path, lines)
            show_observations([*lines, *picture_speed_lines(settings, lines)], guarded)
            file = MetricsFile(run_folder.metrics_path(path))
            file.truncate(-1 if newest is None else int(driver.run.iteration))
            driver.sinks = [file, guarded]
            if newest is None and settings.init is not None:
                driver.save()  # from here on what the run starts from is no longer needed
            return _finish(driver)


def _stop_message(path: Path | None) -> str:
    """Return the message for a run that is stopped now: what is saved, and how to go on."""
    if path is None:
        return NOTHING_KEPT
    if checkpoint.latest_checkpoint(run_folder.checkpoints_path(path)):
        return RESUME_MESSAGE.format(run_folder.resume_command(path))
    return (
        BEGIN_MESSAGE.format(run_folder.resume_command(path))
        if (path / "config.json").exists()
        else REPEAT_MESSAGE
    )


def show_observations(lines: Sequence[str], sinks: GuardedSinks) -> None:
    """Show how observations are read, and what waited until the run is built and checked; without
    a sink that shows observations, print only what asks for a look."""
    checks_passed()
    if not sinks.show_observations(lines):
        for line in lines:
            if line.startswith(NOTE):
                print_notice(line)


def picture_speed_lines(settings: Settings, observations: Sequence[str]) -> list[str]:
    """Return a line on what makes a run faster that learns from pictures on a CPU with an update
    for every step; ``observations`` are the lines on how they are read."""
    pictures = any(": picture " in line for line in observations)
    is_usual = getattr(settings.config, "collect", 0) == 1 and hasattr(settings.config, "batch")
    if not (pictures and is_usual and settings.steps and jax.default_backend() == "cpu"):
        return []
    return [
        "pictures on a CPU: updates bound the speed; --collect 4 takes four steps of each "
        f"environment for one, --batch {max(1, settings.config.batch // 4)} makes each cheaper; "
        "both change what is learned (docs/networks.md)"
    ]


def _write_config(settings: Settings, path: Path, lines: Sequence[str]) -> None:
    """Write config.json and the base model's copy, which make the folder a run's. ``lines`` say how
    observations are read."""
    if settings.speech is not None:
        from sterling.training.language.base_model import (
            keep_base_model,  # tokenizers take time to import
        )

        keep_base_model(path, settings)
    own = {"observations": list(lines)} if lines else {}
    if not (path / "config.json").exists():
        run_folder.write_config(path, settings.to_json() | own | run_folder.environment_facts())


def _finish(driver: Driver) -> TrainedRun:
    """Run to the end, evaluate the final policies, and write the result."""
    driver.go()
    settings, steering = driver.settings, driver.steering
    where = last_phase(settings, steering.stopped)
    best = None if steering.best is None else steering.best.agent
    run = TrainedRun(where, driver.run.agent, _result_so_far(driver), driver.path, best)
    if settings.evaluate_episodes and driver.alive.any():
        found = run.evaluate(settings.evaluate_episodes, keep=True)
        run.result |= {"unended": found.pop("unended"), "final": found}
        failed, judged = run.result["failed_seeds"], driver.evaluation.judged
        if settings.updates and driver.current_phase.acts:
            run.result["switch"] = switch_cost(judged, settings, failed)
        if settings.guide is not None and settings.guide.how == "teacher":
            run.result["taught"] = teacher_comparison(run)
        if settings.phases:
            run.result |= results_by_phase(judged, settings, run)
        if run.needs_fresh_episodes:
            run.result["final_episodes"] = "fresh: played by no periodic evaluation"
    lost = (driver.alive, run.result["failed_seeds"])
    held_out = functools.partial(driver.evaluation.held_out_estimates, *lost)
    if driver.alive.any():
        run.result["final"] |= held_out(driver.run.agent)
        if steering.best is not None:
            run.result["best"] = best_result(steering.best, run, held_out)
    if driver.path is not None:
        complete_run(driver.path, run.result, driver.saved)
    steering.end_event(driver.view, run.result)
    driver.close()
    return run


def complete_run(path: Path, result: dict[str, Any], saved: bool) -> None:
    """Write the result, which completes a run. If the final policies were not ``saved``, or there
    is no disk space for the result, print how to resume the run."""
    if not saved:
        return print_notice(UNSAVED_MESSAGE.format(run_folder.resume_command(path)))
    try:
        run_folder.write_result(path, result)
    except OSError as error:
        command = run_folder.resume_command(path)
        print_notice(f"the result was not written ({error}): free disk space, then: {command}")


def _result_so_far(driver: Driver) -> dict[str, Any]:
    """Return the content of ``result.json`` without the final evaluation."""
    settings = driver.settings
    steps = driver.step - sum(part.warmup for part in driver.parts[: driver.phase + 1])
    total_steps = steps * len(settings.seeds)
    total_updates = driver.update * len(settings.seeds)
    seconds = max(driver.clock.seconds, 1e-9)
    counted = counts_updates(settings)
    of_log = {
        "updates": driver.update,
        "updates_per_second": round(total_updates / seconds, 3),
        "data": None if settings.data is None else dataclasses.asdict(settings.data),
        **({} if settings.speech is None else {"model": settings.speech.model}),
    }
    return {
        "algorithm": settings.title,
        "environment": last_phase(settings, driver.steering.stopped).name,
        "steps": driver.step,
        **(of_log if counted else {}),
        "seeds": list(settings.seeds),
        **({"stopped": driver.steering.stopped} if driver.steering.stopped else {}),
        "final": {},
        "unended": [0] * len(settings.seeds),  # episodes of the final evaluation, for each seed
        **(
            {"channels": channels_to_json(channels)}
            if (channels := _world_channels(driver.run.source))
            else {}
        ),
        "failed_seeds": [int(seed) for seed in driver.failures],
        "failures": driver.failures,
        "world_failures": _world_failures(driver.run.source),
        **unjudged_answers(driver.run.source.worlds),
        "wall_seconds": round(driver.clock.seconds, 3),
        "compile_seconds": round(driver.clock.compile_seconds, 3),
        **({} if counted else {"steps_per_second": round(total_steps / seconds, 3)}),
    }


def _world_channels(source: Any) -> dict[str, Channel]:
    """Return the channels of a source's world; text environments have no spec, and so none."""
    specs = [world.spec for world in source.worlds if hasattr(world, "spec")]
    return specs[0].channels if specs else {}


def _world_failures(source: Any) -> list[str]:
    """Return the failures of worlds on the host, one line each."""
    return [line for world in source.worlds for line in _failures_of(world)]


def _failures_of(world: Any) -> list[str]:
    while not hasattr(world, "failures") and hasattr(world, "world"):
        world = world.world
    return [f"environment {index}: {why}" for index, why in getattr(world, "failures", [])]
