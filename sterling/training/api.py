"""What a user calls: train and resume."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.data import Dataset
from sterling.notice import say
from sterling.report.metrics import Sink
from sterling.training import folder, logbook, outside
from sterling.training.asked_phases import phases
from sterling.training.checks import check_again, check_dump, check_kinds, check_sinks
from sterling.training.choices import Speech
from sterling.training.footprint import check_size
from sterling.training.longer import lengthen
from sterling.training.processes import train_apart
from sterling.training.programs import remember_programs
from sterling.training.settings import Settings, resolve
from sterling.training.single import carry_on
from sterling.training.stored import read_settings
from sterling.training.trained import TrainedRun, bounds, load

NAMED = ("algorithm", "environment", "steps", "updates", "seeds", "data", "config", "speech")
FOUND = ("spaces", "context")  # of a log, of a world's scenes
RUN_OPTIONS = (
    *(x.name for x in dataclasses.fields(Settings) if x.name not in (*NAMED, *FOUND)),
    "preset",
)
SPEECH_OPTIONS = tuple(field.name for field in dataclasses.fields(Speech))
LOG_OPTIONS = ("share", "top", "sampling", "unchecked")


def train(
    algorithm: Any,
    environment: Any = None,
    *,
    steps: int = 0,
    updates: int = 0,
    data: str | Path | Dataset | None = None,
    seeds: int | list[int] = 1,
    out: str | Path | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> TrainedRun:
    """Train ``algorithm`` in ``environment``, from logged experience, or from both.

    With ``data`` and ``updates`` it learns from the log alone; with ``steps`` after that (or
    without ``updates``, from the start) it acts, and ``share`` of every batch comes from the log.

    Args:
        algorithm: a name from ``sterling list algorithms``, ``"path/to/file.py"``,
            ``"package.module"``, a module, or an object with Config, needs, init, act and learn.
        environment: a name (EnvPool, gymnax or Gymnasium), ``"path/to/file.py:factory"``,
            ``"package.module:factory"``, a Task, or a factory of Gymnasium environments, Tasks or
            Worlds (see docs/extending.md); where there is a log, by default the one that it was
            made in.
        steps: environment steps per seed; the run takes as many whole iterations as fit.
        updates: gradient updates per seed from the log alone, before the first step.
        data: a dataset's file or folder (any format), or a Dataset that was read from one.
        seeds: how many (0, 1, ...), or which.
        out: run folder to make; without one nothing is written.
        sinks: further takers of metrics rows; one that raises is told no more.
        **options: ``envs`` (parallel environments per seed), ``strategy`` (map, vmap, processes),
            ``preset`` (use the tuned settings for this environment where there are some; default
            True), ``env_options`` (on top of those that the log's environment was given),
            ``evaluate_episodes`` (20), ``evaluate_limit`` (200_000: steps after which an episode
            of those counts as it stands), ``evaluate_every`` and ``log_every`` (updates, then
            steps),
            ``checkpoint_minutes`` (5); of the log ``share`` (0.5), ``top`` (1.0: only so much of
            the episodes, the best), ``sampling`` (uniform, episodes, return) and ``unchecked``
            (learn even from a broken file); ``online`` (fields of the Config that change with the
            first step); ``then`` (what comes after that: phases, each a text or a dict, as
            ``"steps=60_000 environment=Acrobot-v1 lr=1e-4"``; see docs/phases.md); ``guide`` (a
            :class:`~sterling.training.settings.Guidance`: an earlier run that helps to act);
            ``augment`` (a change of every batch, as ``"gaussian:0.0003"``); ``sources`` (what
            stands around its rollouts, as ``"plr"`` or ``"pool:4,10000"``); ``hindsight`` (how
            goals of a replay are told anew, as ``"future"``); ``return_within``
            (``(low, high)``, what returns cannot leave, where the environment is your own; None for
            an end without a bound) and ``failed`` (what a failed seed counts as in the result: a
            number, "worst" or "exclude"); of a language model
            the fields of :class:`~sterling.training.settings.Speech` (``model``, ``levels``,
            ``curriculum``, ``texts``, ...); and every field of the Config.

    Raises:
        Mistake: wrong use, in one line.
        WorldFailed: an environment that cannot be built or stepped, or fails again and again.
        SystemExit: code 75 after SIGTERM, SIGHUP or Ctrl-C, when the run has been saved.
    """
    check_kinds(algorithm=algorithm, environment=environment, data=data, out=out, **options)
    check_sinks(sinks)
    options["phases"] = phases(options.pop("then", ()))
    known = {name: options.pop(name) for name in RUN_OPTIONS if name in options}
    how = {name: options.pop(name) for name in LOG_OPTIONS if name in options}
    spoken = {name: options.pop(name) for name in SPEECH_OPTIONS if name in options}
    if spoken:
        known["speech"] = Speech(**spoken)
    book = logbook.begun(data, **how)
    given, episodes = known.get("env_options"), known.get("evaluate_episodes", 20)
    world, known["env_options"] = logbook.place(book, environment, given, episodes)
    known |= {"steps": steps, "updates": updates, "data": book, "seeds": seeds}
    settings = logbook.settled(resolve(algorithm, world, fields=options, **known))
    check_dump(settings.speech)
    remember_programs()
    if out is None:
        return _go(settings, None, sinks)
    path = folder.create(out)
    outside.warn_of_what_is_not_stored(settings.to_json())
    try:
        return _go(settings, path, sinks)
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()  # goes only where the run could not begin and nothing was written


def resume(
    path: str | Path,
    *,
    sinks: Sequence[Sink] = (),
    environment: Any = None,
    algorithm: Any = None,
    steps: int | None = None,
    updates: int | None = None,
    then: Any = (),
) -> TrainedRun:
    """Go on with a stopped run from its last checkpoint; a finished one is returned as it is.

    Args:
        path: the run's folder.
        sinks: further takers of metrics rows.
        environment, algorithm: needed again where the run was made with what cannot be imported,
            such as a lambda or an object of a script.
        steps: a larger budget than it was begun with, also of a finished run (None: the same);
            schedules, of the step size say, then run over the larger one.
        updates: the same, of a run that only learns from a log or teaches a language model.
        then: further phases, as :func:`train` takes them, also of a finished run.
    """
    check_again(path=path, environment=environment, algorithm=algorithm)
    check_sinks(sinks)
    path = Path(path)
    settings = read_settings(path, environment, algorithm)
    settings = lengthen(path, settings, phases(then), steps=steps, updates=updates)
    remember_programs()
    if folder.read_result(path) is not None:
        return load(path, environment=environment, algorithm=algorithm)
    return _go(settings, path, sinks)


def _go(settings: Settings, path: Path | None, sinks: Sequence[Sink]) -> TrainedRun:
    check_size(settings)
    if settings.speech is not None:
        from sterling.training import begun, letters, speech  # tokenizers take time to import

        settings = begun.measured(speech.settled(letters.spelled(begun.located(settings))))
    for sink in sinks:
        if hasattr(sink, "return_within"):  # of those that show returns with intervals
            sink.return_within = bounds(settings)
    go = train_apart if settings.strategy == "processes" else carry_on
    run = go(settings, path, sinks)
    if path is not None and folder.read_result(path) is not None:
        from sterling.report.curve import draw  # matplotlib is slow to import

        try:
            draw(path)
        except OSError as error:
            say(f"{folder.curve(path)} not drawn ({error}); the run is complete without it")
    return run


__all__ = ["LOG_OPTIONS", "RUN_OPTIONS", "TrainedRun", "load", "resume", "train"]
