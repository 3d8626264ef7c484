"""Run jobs in one process: several trials side by side in one program."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from sterling.statistics.scores.score_bounds import Bounds
from sterling.training.assembly.build_run import make_world, run_builder
from sterling.training.config.settings import Settings
from sterling.training.evaluation.evaluator import Evaluator
from sterling.training.host_visits import advance_with_visits
from sterling.training.loop import Run
from sterling.training.phases.phase_sequence import (
    acts_in_world,
    steps_per_iteration,
    total_iterations,
    updates_per_iteration,
    warmup_steps,
)
from sterling.training.runtime.divergence import stop_diverged_seeds
from sterling.training.saving import checkpoint
from sterling.tuning import trial_objective
from sterling.tuning.jobs import member_axis
from sterling.tuning.searchers.searchers import Job
from sterling.types import Mistake

# separates the seeds of environments created anew for a continued trial
FRESH_SEED_OFFSET = 1_000_003


class StudyStopped(Exception):
    """A stop was requested in the middle of a job; unfinished jobs are run again on resuming."""


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """What all jobs of a study have in common."""

    settings: Settings  # with the Config of the defaults; its seeds are not used
    objective: str
    folder: Path  # checkpoints are kept below it
    together: int = 1  # trials per piece under map, so that one program serves every piece
    metric: str = "return"  # the episode metric that is scored
    better: int = 1  # -1: lower is better, and scores are negated
    within: Bounds | None = None  # the metric's bounds, where known

    def state(self, trial: int, step: int) -> Path:
        """Return the checkpoint of one trial's agents and experience at a step."""
        return self.folder / "states" / f"{trial:05d}" / f"{step:012d}"


class JobRunner:
    """Runs jobs; compiled programs are kept for later jobs of their kind."""

    def __init__(self, plan: StudyPlan):
        self._plan = plan
        self._programs: dict[Any, tuple[Any, Callable[..., Run]]] = {}

    def run(
        self, jobs: Sequence[Job], stopping: Callable[[], bool] = lambda: False
    ) -> list[dict[str, Any]]:
        """Run jobs of one program and one budget; return their lines of the history.

        Raises Mistake for an impossible configuration, and StudyStopped once ``stopping()`` is
        true.
        """
        start = time.monotonic()
        settings = [member_axis.with_config_fields(self._plan.settings, job.fields) for job in jobs]
        counts = [len(job.seeds) for job in jobs]
        seeds = tuple(seed for job in jobs for seed in job.seeds)
        shared = dataclasses.replace(settings[0], seeds=seeds)
        world, begin = self._program(shared, jobs[0].start)
        try:
            own = member_axis.stack_configs([each.config for each in settings], counts)
            numbers = jnp.asarray(seeds, jnp.int32)
            if jobs[0].start:
                run = self._continued_members(jobs, begin(numbers, own, False), own, shared)
            else:
                run = member_axis.drop_weak_types(begin(numbers, own, True))
            stop = iteration_at(shared, jobs[0].stop)
            run, rows, alive = _train_members((run, shared, self._plan.metric), stop, stopping)
            scores = self._scores(run, shared, rows, alive)
            self._write_checkpoints(jobs, run)
        finally:
            if world is not None and not world.exact:
                world.close()
        seconds = time.monotonic() - start
        return _history_lines(
            jobs, rows, scores, alive, cost=_job_cost(shared, jobs[0]), seconds=seconds
        )

    def _program(self, settings: Settings, start: int) -> tuple[Any, Callable[..., Run]]:
        """Return the environments, if agents act, and the function that begins members.

        Environments that cannot be reset exactly are created anew.
        """
        key = (member_axis.program_key(settings), len(settings.seeds))
        if key in self._programs:
            return self._programs[key]
        world = None
        if acts_in_world(settings):
            fresh = tuple(seed + FRESH_SEED_OFFSET * start for seed in settings.seeds)
            world = make_world(dataclasses.replace(settings, seeds=fresh))
        made = (world, run_builder(settings, world))
        if world is None or world.exact:
            self._programs[key] = made
        return made

    def _continued_members(
        self, jobs: Sequence[Job], fresh: Run, own: Any, settings: Settings
    ) -> Run:
        """Return members that continue from the checkpoints of earlier jobs."""
        start = jobs[0].start
        agents = [job.trial if job.origin is None else job.origin for job in jobs]
        sources = [job.trial for job in jobs]
        needed = sorted({*agents, *sources})
        width = len(jobs[0].seeds)
        shape = member_axis.stored_template(fresh, width)
        saved = [checkpoint.load(self._plan.state(each, start), shape)[0] for each in needed]

        def rows(trials: list[int]) -> np.ndarray:
            first = np.array([needed.index(trial) * width for trial in trials])
            return (first[:, None] + np.arange(width)[None]).reshape(-1)

        first = jnp.asarray(iteration_at(settings, start), jnp.int32)
        agent, source = (
            member_axis.gather_members(saved, rows(each)) for each in (agents, sources)
        )
        return member_axis.assemble_run(fresh, agent, source, own, first)

    def _write_checkpoints(self, jobs: Sequence[Job], run: Run) -> None:
        """Write the checkpoints that later jobs may continue from."""
        first = 0
        for job in jobs:
            rows = slice(first, first + len(job.seeds))
            first += len(job.seeds)
            if not job.kept:
                continue
            path = self._plan.state(job.trial, job.stop)
            if checkpoint.latest_checkpoint(path.parent) == path:
                continue  # the study was killed after this write, before the history's
            members = member_axis.stored_members(run, rows)
            if checkpoint.save(path.parent, job.stop, members, {}) is None:
                raise Mistake(f"no disk space for {path}; free some and resume the study")

    def _scores(
        self, run: Run, settings: Settings, rows: list[np.ndarray], alive: Bool[np.ndarray, "m"]
    ) -> list[float | None]:
        """Return a score per member under ``final``; else None: logged returns are scored."""
        if self._plan.objective != "final":
            return [None] * len(settings.seeds)
        judge = Evaluator(settings, settings.evaluate_episodes)
        try:
            found = judge(run.agent)[self._plan.metric].mean(1)
        finally:
            judge.close()
        columns = _returns_by_member(rows, len(settings.seeds))
        worst = [trial_objective.worst_return(column, self._plan.better) for column in columns]
        good = alive & np.isfinite(found)  # a summary may have no value
        return [float(x) if ok else low for x, ok, low in zip(found, good, worst, strict=True)]


def _train_members(
    start: tuple[Run, Settings, str], stop: int, stopping: Callable[[], bool]
) -> tuple[Run, list[np.ndarray], Bool[np.ndarray, "member"]]:
    """Train a run to iteration ``stop``.

    Returns the run, rows of each member's mean metric per episode (none where the run has no
    episodes), and which members did not diverge.
    """
    run, settings, metric = start
    alive, rows = np.ones(len(settings.seeds), bool), []
    every = iterations_per_row(settings)
    while (done := int(run.iteration)) < stop:
        if stopping():
            raise StudyStopped
        before = jax.device_get(run.agent)
        run = advance_with_visits(run, min(every - done % every, stop - done))
        agent, alive = stop_diverged_seeds(before, run.agent, alive)
        tally = member_axis.episode_statistics(run)
        if tally is not None and metric in tally.totals:  # summaries are of evaluations only
            means = np.asarray(tally.totals[metric]) / np.maximum(tally.episodes, 1)
            rows.append(np.where(alive & (tally.episodes > 0) & np.isfinite(means), means, np.nan))
        run = Run(agent, run.source.reset_statistics(), run.seeds, run.iteration)
    return run, rows, alive


def iterations_per_row(settings: Settings) -> int:
    """Return the iterations between rows: about ``FULL_RUN_ROWS`` rows in a full run."""
    wanted = settings.log_every or settings.budget // trial_objective.FULL_RUN_ROWS
    return max(1, int(wanted / _budget_per_iteration(settings)))


def row_count(settings: Settings) -> int:
    """Return how many rows a full run logs."""
    return math.ceil(total_iterations(settings) / iterations_per_row(settings))


def iteration_at(settings: Settings, step: int) -> int:
    """Return the iteration that a budget ends with: the same share of the whole."""
    total = total_iterations(settings)
    return max(1, round(total * step / settings.budget)) if step else 0


def _budget_per_iteration(settings: Settings) -> int | float:
    """Return the steps or mean updates of one iteration, in the unit of the budget."""
    return (updates_per_iteration if settings.updates else steps_per_iteration)(settings)


def _job_cost(settings: Settings, job: Job) -> dict[str, int]:
    """Return what a job costs per seed, in the unit of the budget."""
    count = iteration_at(settings, job.stop) - iteration_at(settings, job.start)
    before = warmup_steps(settings) if acts_in_world(settings) and not job.start else 0
    return {settings.unit: round(count * _budget_per_iteration(settings)) + before}


def _returns_by_member(rows: list[np.ndarray], members: int) -> list[list[float | None]]:
    """Return each member's logged returns; None where no episode ended."""
    table = np.stack(rows, 1) if rows else np.zeros((members, 0))
    return [[float(x) if math.isfinite(x) else None for x in member] for member in table]


def _history_lines(
    jobs: Sequence[Job],
    rows: list[np.ndarray],
    scores: list[float | None],
    alive: Bool[np.ndarray, "member"],
    *,
    cost: dict[str, int],
    seconds: float,
) -> list[dict[str, Any]]:
    """Return one line of the history per job; time is divided equally over the members."""
    made, first, columns = [], 0, _returns_by_member(rows, len(alive))
    for job in jobs:
        count = len(job.seeds)
        own = slice(first, first + count)
        first += count
        share = seconds * count / len(alive)
        taken: dict[str, float] = {unit: each * count for unit, each in cost.items()}
        taken["seconds"] = round(share, 3)
        line = {"returns": columns[own], "measured": scores[own], "cost": taken}
        failed = [seed for seed, ok in zip(job.seeds, alive[own], strict=True) if not ok]
        made.append({**job.to_json(), **line, "failed": failed})
    return made
