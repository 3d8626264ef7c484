"""Jobs carried out in one process: several trials side by side in one program."""

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

from sterling.statistics.declared import Bounds
from sterling.training import checkpoint
from sterling.training.guard import healthy
from sterling.training.judge import Judge
from sterling.training.loop import Run
from sterling.training.phases import (
    acts,
    iteration_steps,
    iteration_updates,
    iterations,
    warmup_steps,
)
from sterling.training.settings import Settings
from sterling.training.start import beginning, make_world
from sterling.training.visits import live
from sterling.tuning import members, objective
from sterling.tuning.search import Job
from sterling.types import Mistake

FRESH_WORLDS = 1_000_003  # apart: the seeds of worlds that begin anew where a trial goes on


class Stopped(Exception):
    """Asked to stop in the middle of a job; what was not finished is done again on resuming."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What all jobs of a study have in common."""

    settings: Settings  # the defaults' Config; its seeds do not matter here
    objective: str
    folder: Path  # states that something may go on from are kept below
    together: int = 1  # trials at once under map, where one program then serves every piece
    metric: str = "return"  # what of an episode is scored
    better: int = 1  # -1: less of it is better, and scores are the negatives
    within: Bounds | None = None  # its bounds, where they are known

    def state(self, trial: int, step: int) -> Path:
        """The checkpoint of one trial's agents and experience at a step."""
        return self.folder / "states" / f"{trial:05d}" / f"{step:012d}"


class Lanes:
    """Carries out jobs; compiled programs are kept for the next jobs of their kind."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._programs: dict[Any, tuple[Any, Callable[..., Run]]] = {}

    def run(
        self, jobs: Sequence[Job], stopping: Callable[[], bool] = lambda: False
    ) -> list[dict[str, Any]]:
        """What jobs of one program and one budget came to, as lines of the history.

        Raises Mistake where a configuration cannot be, and Stopped where ``stopping()`` says so.
        """
        start = time.monotonic()
        settings = [members.configure(self._plan.settings, job.fields) for job in jobs]
        counts = [len(job.seeds) for job in jobs]
        seeds = tuple(seed for job in jobs for seed in job.seeds)
        shared = dataclasses.replace(settings[0], seeds=seeds)
        world, begin = self._program(shared, jobs[0].start)
        try:
            own = members.stack([each.config for each in settings], counts)
            numbers = jnp.asarray(seeds, jnp.int32)
            if jobs[0].start:
                run = self._going_on(jobs, begin(numbers, own, False), own, shared)
            else:
                run = members.strong(begin(numbers, own, True))
            stop = iteration(shared, jobs[0].stop)
            run, rows, alive = _train((run, shared, self._plan.metric), stop, stopping)
            scores = self._scores(run, shared, rows, alive)
            self._keep(jobs, run)
        finally:
            if world is not None and not world.exact:
                world.close()
        seconds = time.monotonic() - start
        return _lines(jobs, rows, scores, alive, cost=_cost(shared, jobs[0]), seconds=seconds)

    def _program(self, settings: Settings, start: int) -> tuple[Any, Callable[..., Run]]:
        """The world, where agents act, and how members begin; worlds that cannot be reset exactly
        are new."""
        key = (members.program(settings), len(settings.seeds))
        if key in self._programs:
            return self._programs[key]
        world = None
        if acts(settings):
            fresh = tuple(seed + FRESH_WORLDS * start for seed in settings.seeds)
            world = make_world(dataclasses.replace(settings, seeds=fresh))
        made = (world, beginning(settings, world))
        if world is None or world.exact:
            self._programs[key] = made
        return made

    def _going_on(self, jobs: Sequence[Job], fresh: Run, own: Any, settings: Settings) -> Run:
        """Members that go on from where other jobs have left theirs."""
        start = jobs[0].start
        agents = [job.trial if job.origin is None else job.origin for job in jobs]
        sources = [job.trial for job in jobs]
        needed = sorted({*agents, *sources})
        width = len(jobs[0].seeds)
        shape = members.template(fresh, width)
        saved = [checkpoint.load(self._plan.state(each, start), shape)[0] for each in needed]

        def rows(trials: list[int]) -> np.ndarray:
            first = np.array([needed.index(trial) * width for trial in trials])
            return (first[:, None] + np.arange(width)[None]).reshape(-1)

        first = jnp.asarray(iteration(settings, start), jnp.int32)
        agent, source = (members.gather(saved, rows(each)) for each in (agents, sources))
        return members.assemble(fresh, agent, source, own, first)

    def _keep(self, jobs: Sequence[Job], run: Run) -> None:
        """Write what something may go on from."""
        first = 0
        for job in jobs:
            rows = slice(first, first + len(job.seeds))
            first += len(job.seeds)
            if not job.kept:
                continue
            path = self._plan.state(job.trial, job.stop)
            if checkpoint.latest(path.parent) == path:
                continue  # a study that was killed between writing this and saying so
            if checkpoint.save(path.parent, job.stop, members.part(run, rows), {}) is None:
                raise Mistake(f"no room for {path}; make some and resume the study")

    def _scores(
        self, run: Run, settings: Settings, rows: list[np.ndarray], alive: Bool[np.ndarray, "m"]
    ) -> list[float | None]:
        """A number per member under ``final``; else the study scores by the logged returns."""
        if self._plan.objective != "final":
            return [None] * len(settings.seeds)
        judge = Judge(settings, settings.evaluate_episodes)
        try:
            found = judge(run.agent)[self._plan.metric].mean(1)
        finally:
            judge.close()
        columns = _columns(rows, len(settings.seeds))
        worst = [objective.worst(column, self._plan.better) for column in columns]
        return [float(x) if ok else low for x, ok, low in zip(found, alive, worst, strict=True)]


def _train(
    begun: tuple[Run, Settings, str], stop: int, stopping: Callable[[], bool]
) -> tuple[Run, list[np.ndarray], Bool[np.ndarray, "member"]]:
    """A run of some settings to iteration ``stop``: the run, rows of an episode's mean metric per
    member (none where nothing is lived), and who did not diverge."""
    run, settings, metric = begun
    alive, rows = np.ones(len(settings.seeds), bool), []
    every = log_every(settings)
    while (done := int(run.iteration)) < stop:
        if stopping():
            raise Stopped
        before = jax.device_get(run.agent)
        run = live(run, min(every - done % every, stop - done))
        agent, alive = healthy(before, run.agent, alive)
        if (tally := members.episodes(run)) is not None:
            means = np.asarray(tally.totals[metric]) / np.maximum(tally.episodes, 1)
            rows.append(np.where(alive & (tally.episodes > 0) & np.isfinite(means), means, np.nan))
        run = Run(agent, run.source.cleared(), run.seeds, run.iteration)
    return run, rows, alive


def log_every(settings: Settings) -> int:
    """Iterations between rows: about ``objective.ROWS`` rows in a full run."""
    wanted = settings.log_every or settings.budget // objective.ROWS
    return max(1, wanted // _each(settings))


def row_count(settings: Settings) -> int:
    """The rows that a full run logs."""
    return math.ceil(iterations(settings) / log_every(settings))


def iteration(settings: Settings, step: int) -> int:
    """The iteration that a budget ends with: the same share of the whole."""
    total = iterations(settings)
    return max(1, round(total * step / settings.budget)) if step else 0


def _each(settings: Settings) -> int:
    """Of an iteration, in the unit of the budget."""
    return (iteration_updates if settings.updates else iteration_steps)(settings)


def _cost(settings: Settings, job: Job) -> dict[str, int]:
    """What a job takes of each seed, in the unit of the budget."""
    count = iteration(settings, job.stop) - iteration(settings, job.start)
    before = warmup_steps(settings) if acts(settings) and not job.start else 0
    return {settings.unit: count * _each(settings) + before}


def _columns(rows: list[np.ndarray], members: int) -> list[list[float | None]]:
    """Each member's logged returns; None where no episode ended."""
    table = np.stack(rows, 1) if rows else np.zeros((members, 0))
    return [[float(x) if math.isfinite(x) else None for x in member] for member in table]


def _lines(
    jobs: Sequence[Job],
    rows: list[np.ndarray],
    scores: list[float | None],
    alive: Bool[np.ndarray, "member"],
    *,
    cost: dict[str, int],
    seconds: float,
) -> list[dict[str, Any]]:
    """One line of the history per job; time is shared out equally over the members."""
    made, first, columns = [], 0, _columns(rows, len(alive))
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
