"""A study: a searcher, its history on disk, and whoever carries out its jobs.

    <folder>/study.json     what was asked for, resolved
             trials.jsonl   one line per job: fields, seeds, budget, returns (or what else is
                            scored), scores (larger is better), cost
             test.jsonl     the same on fresh seeds, for the incumbent and the defaults
             states/        agents and experience that a trial may go on from; gone at the end
             report.json, report.md    what came out; their presence says: complete
             workers.log, lock

A searcher is a function of its key and of what it was told. Resuming asks and tells everything
again; what the history knows is not trained anew. So an interrupted study, however it ended,
makes the decisions and the numbers that it would have made.
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

from sterling.notice import tell
from sterling.report.guarded import GuardedWatch
from sterling.report.metrics import MetricsFile
from sterling.training.guard import EXIT_RESUMABLE, Interrupt, Lock
from sterling.tuning import members, objective
from sterling.tuning.crew import Crew, Here, make, pieces
from sterling.tuning.lanes import Plan, Stopped, row_count
from sterling.tuning.search import Incumbent, Job, Searcher
from sterling.tuning.stored import read_lines
from sterling.types import Mistake

TESTS = 1_000_000  # trials are counted from here in the test, so that states keep apart

Line = dict[str, Any]
Watch = Callable[[str, Sequence[Job], Line | None], None]  # stage, wave, what has come in


class History:
    """Lines of a JSON-lines file by job; they are added whole and never changed."""

    def __init__(self, path: Path):
        self.lines: dict[int, Line] = {}
        self._file = MetricsFile(path)  # which cuts off a torn last line
        for line in read_lines(path):
            self.lines[line["id"]] = line

    def add(self, line: Line) -> None:
        """One job more."""
        self._file.write(line)
        self.lines[line["id"]] = line

    def known(self, job: Job) -> bool:
        """Whether the job has been done; a Mistake if another one stands in its place."""
        if job.id not in self.lines:
            return False
        same = ("trial", "start", "stop", "origin", "seeds", "fields")
        asked, line = _plain(job.to_json()), self.lines[job.id]
        if any(asked[name] != line[name] for name in same):
            raise Mistake(
                f"job {job.id} of {self._file.path} is not what this study asks for: it was begun "
                "by another version or was changed; start the study anew in another folder"
            )
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Study:
    """Carries one study from where it is to its end."""

    def __init__(
        self, plan: Plan, searcher: Searcher, seeds: tuple[int, ...], *, parallel: int,
        chained: bool, watch: Watch,
    ):  # fmt: skip
        self.plan, self.searcher, self.seeds = plan, searcher, seeds
        self.trials = History(plan.folder / "trials.jsonl")
        self.tests = History(plan.folder / "test.jsonl")
        self._parallel, self._chained, self._watch = parallel, chained, GuardedWatch(watch)
        self._began = time.monotonic()
        self._before = max((line["at"] for line in self._all()), default=0.0)

    @property
    def seconds(self) -> float:
        """Wall-clock time spent, interruptions not counted."""
        return self._before + time.monotonic() - self._began

    def search(self, hands: Here | Crew) -> None:
        """Ask, carry out and tell, wave by wave."""
        while wave := self._wave():
            self._carry_out("search", wave, self.trials, hands)
            for job in wave:
                line = self.trials.lines[job.id]
                self.searcher.tell(job.id, line["scores"], line["cost"])

    def test(self, hands: Here | Crew, best: Incumbent, seeds: tuple[int, ...]) -> list[Line]:
        """Train the incumbent (trial 1) and the defaults (trial 0) on fresh seeds."""
        if overlap := sorted(set(seeds) & set(self.seeds)):
            raise Mistake(f"seeds {overlap} were tuned on; scores on them say nothing: name others")
        whole = self.plan.settings.budget
        plan = [(start, stop, fields) for start, stop, fields in best.plan]
        plan[-1] = (plan[-1][0], whole, plan[-1][2])
        shares = [seeds[i : i + len(self.seeds)] for i in range(0, len(seeds), len(self.seeds))]
        count = 0
        for start, stop, fields in plan:
            jobs = []
            trials = [(1, fields, start, stop)] + ([(0, {}, 0, whole)] if start == 0 else [])
            for trial, own, begin, end in trials:
                for i, share in enumerate(shares):
                    number, kept = TESTS + trial * len(shares) + i, end < whole
                    jobs.append(Job(count, number, own, begin, end, kept, None, share))
                    count += 1
            self._carry_out("test", jobs, self.tests, hands)
        ends = [line for line in self.tests.lines.values() if line["stop"] == whole]
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

    def _carry_out(
        self, stage: str, wave: Sequence[Job], history: History, hands: Here | Crew
    ) -> None:
        """Do what the history does not know yet."""
        left = [job for job in wave if not history.known(job)]
        batched = self.plan.settings.inside == "vmap"  # there a piece is done whole or not at all
        todo = pieces(self.plan, wave if batched else left, hands.workers)
        todo = [piece for piece in todo if any(job in left for job in piece)]
        self._watch(stage, wave, None)

        def record(lines: list[Line]) -> None:
            for line in lines:
                if line["id"] not in history.lines:
                    scores = self._scores(line, history)
                    signed = {} if self.plan.better > 0 else {"better": self.plan.better}
                    whole = {**line, **signed, "scores": scores}
                    history.add({**whole, "at": round(self.seconds, 3)})
                    self._watch(stage, wave, history.lines[line["id"]])

        hands.run(todo, record)

    def _scores(self, line: Line, history: History) -> list[float | None]:
        """A score per seed, from what was logged in this job and those it goes on from."""
        chain = self._chain(line, history)
        sign = self.plan.better
        returns = [
            [_times(sign, value) for each in chain for value in each["returns"][i]]
            for i in range(len(line["seeds"]))
        ]
        failed = [any(seed in each["failed"] for each in chain) for seed in line["seeds"]]
        name = self.plan.objective
        rows = row_count(members.configure(self.plan.settings, line["fields"]))
        return [
            _times(sign, measured) if name == "final" and not bad
            else objective.score(name, own, rows, bad)
            for measured, own, bad in zip(line["measured"], returns, failed, strict=True)
        ]  # fmt: skip

    def _chain(self, line: Line, history: History) -> list[Line]:
        """The jobs that made these agents, oldest first; while a population is searched the last
        alone, by which its trials are told apart."""
        chain = [line]
        linked = self._chained or history is self.tests  # the test trains every plan from its start
        while linked and chain[0]["start"] > 0:
            before = (line["trial"], chain[0]["start"])
            earlier = (old for old in history.lines.values() if _end(old) == before)
            chain.insert(0, next(earlier))
        return chain

    def _all(self) -> list[Line]:
        return [*self.trials.lines.values(), *self.tests.lines.values()]


def _times(sign: int, value: float | None) -> float | None:
    return None if value is None else sign * value


def _plain(line: Line) -> Line:
    """As the file holds it: numbers that are not finite are null."""
    fields = {k: None if v in (math.inf, -math.inf) else v for k, v in line["fields"].items()}
    return {**line, "fields": fields}


def _end(line: Line) -> tuple[int, int]:
    return line["trial"], line["stop"]


def carry_on(
    study: Study, workers: int, test_seeds: tuple[int, ...]
) -> tuple[Incumbent, list[Line]]:
    """Search, then test; SIGTERM, SIGHUP or Ctrl-C leaves with code 75, to be resumed."""
    with Lock(study.plan.folder), Interrupt() as interrupt:
        hands = make(study.plan, workers, lambda: interrupt.requested)
        try:
            study.search(hands)
            best = study.searcher.best()
            if best is None or best.score == float("-inf"):
                raise Mistake(
                    "no trial has a score: no episode ended in time, or every trial diverged; "
                    "ask for a larger budget or narrow the space"
                )
            tested = study.test(hands, best, test_seeds)
        except Stopped:
            at = shlex.quote(str(study.plan.folder))
            tell(f"stopped; go on with: sterling tune --resume {at}")
            raise SystemExit(EXIT_RESUMABLE) from None
        finally:
            hands.close()
            study.close()
        shutil.rmtree(study.plan.folder / "states", ignore_errors=True)
    return best, tested
