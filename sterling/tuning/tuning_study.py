"""A study: a searcher, its history on disk, and the workers that run its jobs.

    <folder>/study.json     the arguments, resolved
             trials.jsonl   one line per job: fields, seeds, budget, returns (or the metric that is
                            scored), scores (larger is better), cost
             test.jsonl     the same on fresh seeds, for the incumbent and the defaults
             states/        checkpoints that a trial may continue from; removed at the end
             report.json, report.md    the results; once they exist the study is complete
             workers.log, lock

A searcher is a function of its key and of the scores it was told. Resuming asks and tells
everything again; jobs in the history are not trained again. So an interrupted study, however it
ended, makes the decisions and the numbers that it would have made without the interruption.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterling.report.live.guarded_sinks import GuardedCallback
from sterling.report.live.metric_sinks import MetricsFile
from sterling.system.terminal_messages import each_notice_once, print_progress
from sterling.training.runtime.folder_lock import FolderLock
from sterling.training.runtime.signals import EXIT_RESUMABLE, Interrupt
from sterling.tuning import trial_objective
from sterling.tuning.jobs import member_axis
from sterling.tuning.jobs.job_pool import (
    InProcessWorker,
    WorkerPool,
    split_into_pieces,
    start_workers,
)
from sterling.tuning.jobs.parallel_trials import StudyPlan, StudyStopped, row_count
from sterling.tuning.searchers.searchers import Incumbent, Job, Searcher
from sterling.tuning.stored_study import read_lines
from sterling.types import Mistake

FIRST_TEST_TRIAL = 1_000_000  # test trials count from here, so their checkpoints are separate

HistoryLine = dict[str, Any]
# stage, wave, finished job or None
StudyWatch = Callable[[str, Sequence[Job], HistoryLine | None], None]


class JobHistory:
    """The lines of a JSON-lines file by job id; lines are added whole and never changed."""

    def __init__(self, path: Path):
        self.lines: dict[int, HistoryLine] = {}
        self._file = MetricsFile(path)  # removes an incomplete last line
        for line in read_lines(path):
            self.lines[line["id"]] = line

    def add(self, line: HistoryLine) -> None:
        """Add the line of a job."""
        self._file.write(line)
        self.lines[line["id"]] = line

    def known(self, job: Job) -> bool:
        """Whether the job is done; raises Mistake if another job has its id."""
        if job.id not in self.lines:
            return False
        same = ("trial", "start", "stop", "origin", "seeds", "fields")
        wanted, line = _as_stored_line(job.to_json()), self.lines[job.id]
        if any(wanted[name] != line[name] for name in same):
            raise Mistake(
                f"job {job.id} of {self._file.path} is not what this study asks for: it was begun "
                "by another version or was changed; start the study anew in another folder"
            )
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Study:
    """Carries one study from its current state to its end."""

    def __init__(
        self, plan: StudyPlan, searcher: Searcher, seeds: tuple[int, ...], *, parallel: int,
        chained: bool, watch: StudyWatch,
    ):  # fmt: skip
        self.plan, self.searcher, self.seeds = plan, searcher, seeds
        self.trials = JobHistory(plan.folder / "trials.jsonl")
        self.tests = JobHistory(plan.folder / "test.jsonl")
        self._parallel, self._chained, self._watch = parallel, chained, GuardedCallback(watch)
        self._began = time.monotonic()
        self._before = max((line["at"] for line in self._all()), default=0.0)

    @property
    def seconds(self) -> float:
        """Return the wall-clock seconds spent, interruptions not counted."""
        return self._before + time.monotonic() - self._began

    def search(self, pool: InProcessWorker | WorkerPool) -> None:
        """Ask, run and tell, wave by wave."""
        while wave := self._wave():
            self._run_jobs("search", wave, self.trials, pool)
            for job in wave:
                line = self.trials.lines[job.id]
                self.searcher.tell(job.id, line["scores"], line["cost"])

    def test(
        self, pool: InProcessWorker | WorkerPool, best: Incumbent, seeds: tuple[int, ...]
    ) -> list[HistoryLine]:
        """Train the incumbent (trial 1) and the defaults (trial 0) on fresh seeds."""
        if overlap := sorted(set(seeds) & set(self.seeds)):
            raise Mistake(
                f"seeds {', '.join(map(str, overlap))} were used for tuning, and scores on them "
                "are too high; give other test seeds"
            )
        budget = self.plan.settings.budget
        plan = [(start, stop, fields) for start, stop, fields in best.plan]
        plan[-1] = (plan[-1][0], budget, plan[-1][2])
        shares = [seeds[i : i + len(self.seeds)] for i in range(0, len(seeds), len(self.seeds))]
        count = 0
        for start, stop, fields in plan:
            jobs = []
            trials = [(1, fields, start, stop)] + ([(0, {}, 0, budget)] if start == 0 else [])
            for trial, own, begin, end in trials:
                for i, share in enumerate(shares):
                    number, kept = FIRST_TEST_TRIAL + trial * len(shares) + i, end < budget
                    jobs.append(Job(count, number, own, begin, end, kept, None, share))
                    count += 1
            self._run_jobs("test", jobs, self.tests, pool)
        ends = [line for line in self.tests.lines.values() if line["stop"] == budget]
        return sorted(ends, key=lambda line: line["trial"])

    def close(self) -> None:
        """Close the files."""
        self.trials.close()
        self.tests.close()

    def _wave(self) -> list[Job]:
        wave: list[Job] = []
        while len(wave) < self._parallel and (job := self.searcher.ask()) is not None:
            wave.append(dataclasses.replace(job, seeds=self.seeds))
        return wave

    def _run_jobs(
        self,
        stage: str,
        wave: Sequence[Job],
        history: JobHistory,
        pool: InProcessWorker | WorkerPool,
    ) -> None:
        """Run the jobs that are not in the history yet."""
        left = [job for job in wave if not history.known(job)]
        # under vmap a piece is always run whole
        batched = self.plan.settings.program_strategy == "vmap"
        todo = split_into_pieces(self.plan, wave if batched else left, pool.workers)
        todo = [piece for piece in todo if any(job in left for job in piece)]
        self._watch(stage, wave, None)

        def record(lines: list[HistoryLine]) -> None:
            for line in lines:
                if line["id"] not in history.lines:
                    scores = self._scores(line, history)
                    signed = {} if self.plan.better > 0 else {"better": self.plan.better}
                    whole = {**line, **signed, "scores": scores}
                    history.add({**whole, "at": round(self.seconds, 3)})
                    self._watch(stage, wave, history.lines[line["id"]])

        pool.run(todo, record)

    def _scores(self, line: HistoryLine, history: JobHistory) -> list[float | None]:
        """Return a score per seed, from the returns logged in this job and those it continues."""
        chain = self._chain(line, history)
        sign = self.plan.better
        returns = [
            [_apply_sign(sign, value) for each in chain for value in each["returns"][i]]
            for i in range(len(line["seeds"]))
        ]
        failed = [any(seed in each["failed"] for each in chain) for seed in line["seeds"]]
        name = self.plan.objective
        rows = row_count(member_axis.with_config_fields(self.plan.settings, line["fields"]))
        return [
            _apply_sign(sign, measured) if name == "final" and not bad
            else trial_objective.score_seed(name, own, rows, bad)
            for measured, own, bad in zip(line["measured"], returns, failed, strict=True)
        ]  # fmt: skip

    def _chain(self, line: HistoryLine, history: JobHistory) -> list[HistoryLine]:
        """Return the jobs that trained these agents, oldest first.

        While a population is searched only the last one, by which its trials are compared.
        """
        chain = [line]
        linked = self._chained or history is self.tests  # the test trains every plan from the start
        while linked and chain[0]["start"] > 0:
            before = (line["trial"], chain[0]["start"])
            earlier = (old for old in history.lines.values() if _trial_and_stop(old) == before)
            chain.insert(0, next(earlier))
        return chain

    def _all(self) -> list[HistoryLine]:
        return [*self.trials.lines.values(), *self.tests.lines.values()]


def _apply_sign(sign: int, value: float | None) -> float | None:
    return None if value is None else sign * value


def _as_stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return None if value in (math.inf, -math.inf) else value


def _as_stored_line(line: HistoryLine) -> HistoryLine:
    """Return a line as the file holds it: infinite numbers are null, and tuples are lists."""
    fields = {k: _as_stored(v) for k, v in line["fields"].items()}
    return {**line, "fields": fields}


def _trial_and_stop(line: HistoryLine) -> tuple[int, int]:
    return line["trial"], line["stop"]


def run_study(
    study: Study, workers: int, test_seeds: tuple[int, ...]
) -> tuple[Incumbent, list[HistoryLine]]:
    """Search, then test. Every distinct notice of the trials is printed once.

    SIGTERM, SIGHUP or Ctrl-C exits with code 75, and the study can be resumed.
    """
    with FolderLock(study.plan.folder), Interrupt() as interrupt, each_notice_once():
        pool = start_workers(study.plan, workers, lambda: interrupt.requested)
        try:
            study.search(pool)
            best = study.searcher.best()
            if best is None or best.score == float("-inf"):
                raise Mistake(
                    "no trial has a score: no episode ended in time, or every trial diverged; "
                    "ask for a larger budget or narrow the space"
                )
            tested = study.test(pool, best, test_seeds)
        except StudyStopped:
            at = shlex.quote(str(study.plan.folder))
            print_progress(f"stopped; resume with: sterling tune --resume {at}")
            raise SystemExit(EXIT_RESUMABLE) from None
        finally:
            pool.close()
            study.close()
        shutil.rmtree(study.plan.folder / "states", ignore_errors=True)
    return best, tested
