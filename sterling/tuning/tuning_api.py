"""The user's functions: tune and resume."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.data import Dataset
from sterling.statistics import Headline
from sterling.training.config import user_code_words
from sterling.training.config.settings import Settings
from sterling.training.evaluation.scored_channel import bounds_and_direction, is_summary
from sterling.training.phases.phase_sequence import acts_in_world
from sterling.training.runtime.compilation import enable_compilation_cache
from sterling.training.saving import run_folder
from sterling.tuning import stored_study, study_outcome
from sterling.tuning.jobs.job_pool import usable_cores
from sterling.tuning.jobs.parallel_trials import StudyPlan
from sterling.tuning.search_space import Fields, Space
from sterling.tuning.searchers.searchers import Job
from sterling.tuning.study_arguments import NAMED, sort_arguments, study_arguments, study_progress
from sterling.tuning.study_settings import (
    POPULATIONS,
    check_counts,
    check_study,
    check_workers,
    has_compiled_worlds,
    logs_returns,
    make_searcher,
    study_settings,
    study_space,
)
from sterling.tuning.tuning_study import HistoryLine, Study, StudyWatch, run_study
from sterling.types import Mistake

# trials per piece where every piece creates its environments and programs anew
HOST_TRIALS_TOGETHER = 16
JOBS_PER_WAVE = 8  # jobs per wave where later jobs depend on earlier ones


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The result of a study; ``report`` as in report.json."""

    fields: Fields  # of the incumbent; its last ones if they changed during training
    report: dict[str, Any]
    path: Path | None

    def __repr__(self) -> str:
        test = Headline.from_json(self.report["incumbent"]["test"])
        found = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"Tuned({found}; {test} on fresh seeds)"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return self.report


def tune(
    algorithm: Any = None,
    environment: Any = None,
    *,
    config: str | Path | None = None,
    steps: int | None = None,
    updates: int | None = None,
    data: str | Path | Dataset | None = None,
    trials: int | None = None,
    seeds: int | Sequence[int] | None = None,
    test_seeds: int | Sequence[int] | None = None,
    search: str | None = None,
    space: Mapping[str, Any] | Sequence[str] | None = None,
    objective: str | None = None,
    metric: str | None = None,
    out: str | Path | None = None,
    key: int | None = None,
    parallel: int | None = None,
    workers: int | None = None,
    watch: StudyWatch | None = None,
    quiet: bool | None = None,
    **options: Any,
) -> Tuned:
    """Find settings of ``algorithm`` for ``environment``, and test them on fresh seeds.

    Args:
        algorithm: as in ``sterling.train``.
        environment: as in ``sterling.train``; with a dataset by default the one it was made in.
        config: a file of settings (YAML, JSON or TOML; see docs/configuration.md) with any of these
            arguments; arguments that are given here replace the file's.
        steps: environment steps per seed of a full training; or
        updates: gradient updates per seed, for offline training or a language model.
        data: dataset to learn from.
        trials: number of configurations (32; of pbt and pb2: the population).
        seeds: tuning seeds, how many (5) or which; every configuration is trained on all of them.
        test_seeds: fresh seeds for the report, how many (10, from 1000 on) or which.
        search: random (default), asha, halving, pbt, pb2 or optuna.
        space: field -> range (see ``tuning/search_space.py``), or texts ``"FIELD=RANGE"`` and
            ``"default"``; None: the fields whose value is a range, or else the algorithm's own
            space, from spaces.json.
        objective: last, bound, area or final (see ``tuning/trial_objective.py``); None: last, but
            final where training logs no returns, and for summaries.
        metric: the metric that is scored: return (default), or a channel or summary that the
            environment reports, in the direction that it declares.
        out: study folder to create; without one nothing is kept.
        key: the seed of the search's randomness.
        parallel: jobs asked for before any score is told; part of the study's identity.
        workers: processes, one per core by default; 1 is this process. Changes no number.
        watch: is called for every wave and every finished job.
        quiet: False: show progress; default True.
        **options: ``eta`` (3), ``least`` (steps of the lowest rung, steps / eta^2) of asha and
            halving; ``generations`` (10), ``quantile`` (0.25) of pbt and pb2; ``envs``,
            ``strategy`` (map, vmap), ``preset``, ``env_options`` (or ``env``),
            ``evaluate_episodes``, ``log_every``, ``augment``, ``sources``, ``hindsight``,
            ``plasticity``, ``critic_obs``, ``obs``, ``encoder``, ``return_within``, ``failed``,
            those of a dataset and of a language model as in ``sterling.train``; fields of the
            Config: a value fixes one (``lr=3e-4``), a range searches it
            (``lr="1e-5..1e-2:log"``, ``activation=["tanh", "relu"]``); ``set`` (a mapping), for a
            field that has the name of an option above; and options of the environment.

    Raises:
        Mistake: wrong use, in one line; this includes test seeds that are also tuned on.
        SystemExit: code 75 after SIGTERM, SIGHUP or Ctrl-C; :func:`resume` continues.
    """
    named = {name: value for name, value in locals().items() if name in NAMED}
    given = {name: value for name, value in named.items() if value is not None} | options
    asked = study_arguments(config, given)
    workers, quiet, out = (
        asked.pop("workers", None),
        asked.pop("quiet", True),
        asked.pop("out", None),
    )
    check_workers(workers)
    place, space, arguments = sort_arguments(asked)
    arguments = check_counts(arguments)
    made_here = None if quiet or watch else study_progress(arguments, place)
    with contextlib.closing(made_here) if made_here else contextlib.nullcontext():
        how: Any = {"workers": workers, "watch": watch or made_here}
        return _begin_study(arguments, place, space, out, **how)


def resume(
    path: str | Path,
    *,
    workers: int | None = None,
    watch: StudyWatch | None = None,
    environment: Any = None,
    algorithm: Any = None,
) -> Tuned:
    """Resume a study; a finished one is returned as it is.

    It makes the decisions and the numbers it would have made without the interruption.
    ``environment`` and ``algorithm`` are needed again where the study used objects that cannot be
    imported.
    """
    path = Path(path)
    check_workers(workers)
    if not (path / "study.json").is_file():
        raise Mistake(f"{path} holds no study; start one with `sterling tune`")
    arguments, settings, wanted = open_study(path, environment, algorithm)
    user_code_words.warn_of_changes(arguments)
    if (path / "report.json").exists():
        made = stored_study.read_report(path)
        return Tuned(made["incumbent"]["fields"], made, path)
    return _run_and_report(arguments, settings, wanted, path, workers=workers, watch=watch)


def open_study(
    path: Path, environment: Any = None, algorithm: Any = None
) -> tuple[dict[str, Any], Settings, Space]:
    """Read a study's folder: its arguments, its settings and its space.

    ``environment`` and ``algorithm`` are the user's own objects, where they cannot be imported
    again. Raises :class:`Mistake`, naming the file, for values that cannot be a study's.
    """
    given = user_code_words.given_references(environment, algorithm)
    arguments = stored_study.read_study(path)
    how = {"undo": ""} if user_code_words.uses_own_code(arguments, given) else {}
    with stored_study.name_file_in_mistakes(path / "study.json", **how):
        known = user_code_words.from_json(arguments, **given)
        arguments["algorithm"] = known["algorithm"]
        wanted = Space.from_json(arguments["space"])
        arguments = check_counts({"updates": 0, "parallel": None, **arguments})
        settings = study_settings(arguments, known["environment"] or None)
        check_study(arguments, settings, wanted)
    return arguments, settings, wanted


def _begin_study(
    arguments: dict[str, Any],
    environment: Any,
    given: Mapping[str, Any] | None,
    out: str | Path | None,
    *,
    workers: int | None,
    watch: StudyWatch | None,
) -> Tuned:
    """Start a new study."""
    wanted = study_space(arguments["algorithm"], given, arguments["fixed"])
    settings = study_settings(arguments, environment)
    logged = logs_returns(settings) and not is_summary(arguments.get("metric", "return"), settings)
    arguments["objective"] = arguments["objective"] or ("last" if logged else "final")
    check_study(arguments, settings, wanted)
    arguments |= user_code_words.to_json(settings.algorithm, settings.environment)
    arguments["space"] = wanted.to_json()
    if out is None:
        with tempfile.TemporaryDirectory() as short_lived:
            made = _run_and_report(
                arguments, settings, wanted, Path(short_lived), workers=workers, watch=watch
            )
        return dataclasses.replace(made, path=None)
    path = _create_folder(Path(out))
    run_folder.write_json(path / "study.json", arguments | run_folder.environment_facts())
    try:
        return _run_and_report(arguments, settings, wanted, path, workers=workers, watch=watch)
    except Mistake:
        _remove_unused_folder(path)
        raise


def _run_and_report(
    arguments: dict[str, Any],
    settings: Settings,
    wanted: Space,
    path: Path,
    *,
    workers: int | None,
    watch: StudyWatch | None,
) -> Tuned:
    enable_compilation_cache()
    is_reusable = not acts_in_world(settings) or has_compiled_worlds(settings.environment)
    metric = arguments.get("metric", "return")
    within, better = bounds_and_direction(metric, [settings])
    together = 1 if is_reusable else HOST_TRIALS_TOGETHER
    plan = StudyPlan(settings, arguments["objective"], path, together, metric, better, within)
    searcher = make_searcher(arguments, wanted)
    is_sequential = arguments["search"] in ("asha", "optuna")
    parallel = arguments["parallel"] or (JOBS_PER_WAVE if is_sequential else arguments["trials"])
    if workers is None:
        workers = 1 if settings.program_strategy == "vmap" else len(usable_cores())
    study = Study(
        plan, searcher, tuple(arguments["seeds"]), parallel=parallel,
        chained=arguments["search"] not in POPULATIONS, watch=watch or _watch_nothing,
    )  # fmt: skip
    best, tested = run_study(study, workers, tuple(arguments["test_seeds"]))
    made = study_outcome.make_report(arguments, study, wanted, best, tested)
    study_outcome.write_report(path, made)
    return Tuned(best.fields, made, path)


def _create_folder(path: Path) -> Path:
    if (path / "study.json").exists():
        at = shlex.quote(str(path))
        raise Mistake(f"{path} already holds a study; resume it with: sterling tune --resume {at}")
    return run_folder.create(path)


def _remove_unused_folder(path: Path) -> None:
    """Remove the study's files and folder if no job has finished."""
    history = path / "trials.jsonl"
    if history.exists() and history.stat().st_size:
        return
    for name in ("study.json", "trials.jsonl", "test.jsonl", "workers.log", "lock"):
        (path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()


def _watch_nothing(stage: str, wave: Sequence[Job], line: HistoryLine | None) -> None:
    """No-op: the default for ``watch``."""
