"""What a user calls: tune and resume."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling import algorithms
from sterling.data import Dataset
from sterling.training import folder, logbook, outside
from sterling.training.api import LOG_OPTIONS, SPEECH_OPTIONS
from sterling.training.phases import acts
from sterling.training.programs import remember_programs
from sterling.training.scored_by import declared
from sterling.training.settings import Settings
from sterling.tuning import outcome, stored
from sterling.tuning.asked import (
    POPULATIONS,
    check,
    check_workers,
    counted,
    is_compiled,
    lives,
    make_searcher,
    numbers,
    settings_of,
    space_of,
)
from sterling.tuning.crew import cores
from sterling.tuning.lanes import Plan
from sterling.tuning.search import Job
from sterling.tuning.space import Fields, Space
from sterling.tuning.study import Line, Study, Watch, carry_on
from sterling.types import Mistake

HOST_TOGETHER = 16  # trials at once where worlds, and so programs, are made anew for every piece
ASKED_TOGETHER = 8  # jobs of a wave, where later jobs depend on earlier ones
FIRST_TEST_SEED = 1_000
SEARCH_OPTIONS = ("eta", "least", "generations", "quantile")
STUDY_OPTIONS = (
    *("envs", "strategy", "preset", "env_options", "evaluate_episodes", "log_every", "augment"),
    *("sources", "hindsight", "return_within", "failed"),
)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a study came to; ``report`` as in report.json."""

    fields: Fields  # of the incumbent; those of its end, where they changed on the way
    report: dict[str, Any]
    path: Path | None


def tune(
    algorithm: Any,
    environment: Any = None,
    *,
    steps: int = 0,
    updates: int = 0,
    data: str | Path | Dataset | None = None,
    trials: int = 32,
    seeds: int | Sequence[int] = 5,
    test_seeds: int | Sequence[int] = 10,
    search: str = "random",
    space: Mapping[str, Any] | None = None,
    objective: str | None = None,
    metric: str = "return",
    out: str | Path | None = None,
    key: int = 0,
    parallel: int | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Tuned:
    """Find settings of ``algorithm`` for ``environment``, and test them on fresh seeds.

    Args:
        algorithm: as in ``sterling.train``.
        environment: as in ``sterling.train``; with a log by default the one that it was made in.
        steps: environment steps per seed of a full training; or
        updates: gradient updates per seed of one that learns from a log, or of a language model.
        data: log to learn from.
        trials: configurations begun (of pbt and pb2: the population).
        seeds: tuning seeds, how many or which; every configuration is trained on all of them.
        test_seeds: fresh seeds for the report, how many (from 1000 on) or which.
        search: random, asha, halving, pbt, pb2 or optuna.
        space: field -> range (see ``tuning/space.py``); None: the algorithm's own, spaces.json.
        objective: last, bound, area or final (see ``tuning/objective.py``); None: last, but final
            where nothing is lived while it is learned.
        metric: what of an episode is scored: return, or a channel that the world reports, in the
            direction that it declares.
        out: study folder to make; without one nothing is kept.
        key: all of the search's randomness.
        parallel: jobs asked for before any of them is told; part of the study's identity.
        workers: processes, one per core by default; 1 is this process. Changes no number.
        watch: is told of every wave and every job that came in.
        **options: ``eta`` (3), ``least`` (steps of the lowest rung, steps / eta^2) of asha and
            halving; ``generations`` (10), ``quantile`` (0.25) of pbt and pb2; ``envs``,
            ``strategy`` (map, vmap), ``preset``, ``env_options``, ``evaluate_episodes``,
            ``log_every``, ``augment``, ``sources``, ``hindsight``, ``return_within``, ``failed``,
            those of a log and those of a language model as in ``sterling.train``; and fields of
            the Config to hold fixed.

    Raises:
        Mistake: wrong use, in one line; test seeds that are tuned on are one.
        SystemExit: code 75 after SIGTERM, SIGHUP or Ctrl-C; :func:`resume` goes on.
    """
    check_workers(workers)
    how = {name: options.pop(name) for name in SEARCH_OPTIONS if name in options}
    known = {name: options.pop(name) for name in STUDY_OPTIONS if name in options}
    logged = {name: options.pop(name) for name in LOG_OPTIONS if name in options}
    spoken = {name: options.pop(name) for name in SPEECH_OPTIONS if name in options}
    book = logbook.begun(data, **logged)
    asked = {
        "algorithm": algorithms.word_of(algorithm),
        "steps": steps, "updates": updates, "trials": trials,
        "data": None if book is None else dataclasses.asdict(book), "speech": spoken,
        "seeds": list(numbers(seeds, 0)),
        "test_seeds": list(numbers(test_seeds, FIRST_TEST_SEED)),
        "search": search, "objective": objective, "metric": metric, "key": key,
        "parallel": parallel, "how": how, "known": known, "fixed": options,
    }  # fmt: skip
    return _begin(counted(asked), environment, space, out, workers=workers, watch=watch)


def resume(
    path: str | Path,
    *,
    workers: int | None = None,
    watch: Watch | None = None,
    environment: Any = None,
    algorithm: Any = None,
) -> Tuned:
    """Go on with a study; a finished one is returned as it is.

    It makes the decisions and the numbers it would have made without the interruption.
    ``environment`` and ``algorithm`` are needed again where the study was made with what cannot
    be imported.
    """
    path = Path(path)
    check_workers(workers)
    if not (path / "study.json").is_file():
        raise Mistake(f"{path} holds no study; start one with `sterling tune`")
    asked, settings, wanted = opened(path, environment, algorithm)
    outside.warn_of_changes(asked)
    if (path / "report.json").exists():
        made = stored.read_report(path)
        return Tuned(made["incumbent"]["fields"], made, path)
    return _go(asked, settings, wanted, path, workers=workers, watch=watch)


def opened(
    path: Path, environment: Any = None, algorithm: Any = None
) -> tuple[dict[str, Any], Settings, Space]:
    """What the study in a folder was asked for, its settings and its space; ``environment`` and
    ``algorithm`` are the user's own, where they cannot be imported again. Raises :class:`Mistake`,
    naming the file, for what cannot be a study."""
    given = outside.given_again(environment, algorithm)
    asked = stored.read_asked(path)
    how = {"undo": ""} if outside.is_own(asked, given) else {}
    with stored.naming(path / "study.json", **how):
        known = outside.from_json(asked, **given)
        asked["algorithm"] = known["algorithm"]
        wanted = Space.from_json(asked["space"])
        asked = counted({"updates": 0, "parallel": None, **asked})
        settings = settings_of(asked, known["environment"] or None)
        check(asked, settings, wanted)
    return asked, settings, wanted


def _begin(
    asked: dict[str, Any],
    environment: Any,
    given: Mapping[str, Any] | None,
    out: str | Path | None,
    *,
    workers: int | None,
    watch: Watch | None,
) -> Tuned:
    """A new study."""
    wanted = space_of(asked["algorithm"], given, asked["fixed"])
    settings = settings_of(asked, environment)
    asked["objective"] = asked["objective"] or ("last" if lives(settings) else "final")
    check(asked, settings, wanted)
    asked |= outside.to_json(settings.algorithm, settings.environment)
    asked["space"] = wanted.to_json()
    if out is None:
        with tempfile.TemporaryDirectory() as short_lived:
            made = _go(asked, settings, wanted, Path(short_lived), workers=workers, watch=watch)
        return dataclasses.replace(made, path=None)
    path = _create(Path(out))
    folder.write_json(path / "study.json", asked | folder.environment_facts())
    try:
        return _go(asked, settings, wanted, path, workers=workers, watch=watch)
    except Mistake:
        _tidy(path)
        raise


def _go(
    asked: dict[str, Any],
    settings: Settings,
    wanted: Space,
    path: Path,
    *,
    workers: int | None,
    watch: Watch | None,
) -> Tuned:
    remember_programs()
    lasting = not acts(settings) or is_compiled(settings.environment)
    metric = asked.get("metric", "return")
    within, better = declared(metric, [settings])
    together = 1 if lasting else HOST_TOGETHER
    plan = Plan(settings, asked["objective"], path, together, metric, better, within)
    searcher = make_searcher(asked, wanted)
    waiting = asked["search"] in ("asha", "optuna")
    parallel = asked["parallel"] or (ASKED_TOGETHER if waiting else asked["trials"])
    if workers is None:
        workers = 1 if settings.inside == "vmap" else len(cores())
    study = Study(
        plan, searcher, tuple(asked["seeds"]), parallel=parallel,
        chained=asked["search"] not in POPULATIONS, watch=watch or _silent,
    )  # fmt: skip
    best, tested = carry_on(study, workers, tuple(asked["test_seeds"]))
    made = outcome.report(asked, study, wanted, best, tested)
    outcome.write(path, made)
    return Tuned(best.fields, made, path)


def _create(path: Path) -> Path:
    if (path / "study.json").exists():
        at = shlex.quote(str(path))
        raise Mistake(f"{path} already holds a study; go on with: sterling tune --resume {at}")
    return folder.create(path)


def _tidy(path: Path) -> None:
    """Leave no folder behind where nothing could begin."""
    history = path / "trials.jsonl"
    if history.exists() and history.stat().st_size:
        return
    for name in ("study.json", "trials.jsonl", "test.jsonl", "workers.log", "lock"):
        (path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()


def _silent(stage: str, wave: Sequence[Job], line: Line | None) -> None:
    """Nobody looks."""
