"""The functions that a user calls: train and resume."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.data import Dataset
from sterling.report.live.curve_imports import CurveImports
from sterling.report.live.metric_sinks import Sink
from sterling.report.live.requested_sinks import requested_sinks
from sterling.system.terminal_messages import checked_first
from sterling.training.assembly.environment_options import extend_run
from sterling.training.assembly.run_dataset import (
    choose_environment,
    fill_from_log,
    make_log_settings,
    say_that_log_is_missing,
    without_evaluation,
)
from sterling.training.config import user_code_words
from sterling.training.config.config_file import env_arguments
from sterling.training.config.extend_budget import online_environment
from sterling.training.config.option_checks import (
    check_argument_types,
    check_dump_folder,
    check_load_arguments,
    check_sinks,
)
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_arguments import (
    LOG_OPTIONS,
    OUTPUT_OPTIONS,
    SETTINGS_ARGUMENTS,
    SPEECH_OPTIONS,
    TRAIN_ARGUMENTS,
    join_env_options,
    sort_options,
    train_arguments,
)
from sterling.training.config.run_options import LanguageSettings
from sterling.training.config.settings import Settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.fields import schedule_fields
from sterling.training.fields.config_fields import seed_numbers
from sterling.training.in_process import train_in_process
from sterling.training.phases.budget_notices import report_budget
from sterling.training.phases.phase_options import parse_phases
from sterling.training.processes import run_end
from sterling.training.processes.process_launcher import train_in_processes
from sterling.training.runtime import program_store
from sterling.training.runtime.compilation import enable_compilation_cache
from sterling.training.runtime.memory_footprint import check_memory
from sterling.training.saving import run_folder
from sterling.training.steering.callbacks import Callback, Event, check_callbacks
from sterling.training.trained_run import TrainedRun, load, run_return_bounds
from sterling.training.warm_start.init_word import resolve_init


@checked_first()
def train(
    algorithm: Any = None,
    environment: Any = None,
    *,
    config: str | Path | None = None,
    steps: int | None = None,
    updates: int | None = None,
    data: str | Path | Dataset | None = None,
    seeds: int | list[int] | None = None,
    out: str | Path | None = None,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Any] = (),
    **options: Any,
) -> TrainedRun:
    """Train ``algorithm`` in ``environment``, from logged experience, or from both.

    With ``data`` and ``updates`` it first learns from the dataset alone (offline). With ``steps``
    it then acts (online), and ``share`` of every batch still comes from the dataset; without
    ``updates`` the online phase starts at once.

    Args:
        algorithm: a name from ``sterling list algorithms``, ``"path/to/file.py"``,
            ``"package.module"``, a module, or an object with Config, needs, init, act and learn.
        environment: a name (EnvPool, gymnax or Gymnasium), ``"path/to/file.py:factory"``,
            ``"package.module:factory"``, a Task, or a factory of Gymnasium environments, Tasks or
            Worlds (see docs/extending.md). With a dataset the default is the environment in which
            it was made; a language model that learns from a file (``texts``) needs none, and is
            not evaluated then.
        config: a file of settings (YAML, JSON or TOML; see docs/configuration.md) with any of these
            arguments, the algorithm included; arguments that are given here replace the file's.
        steps: environment steps per seed; the run makes as many whole iterations as fit.
        updates: gradient updates per seed from the dataset alone, before the first step; with
            ``texts`` the default is three passes over them.
        data: a dataset's file or folder (any format), or a Dataset that was read from one.
        seeds: how many (0, 1, ...), or a list of seeds; default 1.
        out: the run folder to create; without it nothing is written.
        sinks: further receivers of metrics rows; one that raises an exception is dropped.
        callbacks: objects with ``on_log(event)``, ``on_evaluation(event)``,
            ``on_checkpoint(event)`` or ``on_end(event)``, which can log numbers, evaluate and stop
            the run: see :class:`sterling.Callback` and docs/steering.md.
        **options: the same words as on the command line, with _ for -: ``envs`` (parallel
            environments per seed), ``strategy`` (map, vmap, processes), ``preset`` (use the tuned
            settings for this environment or its kind if there are any, and a warm-up that fits the
            steps; default True), ``env_options`` (or ``env``: added to the options with which the
            dataset was made), ``evaluate_episodes`` (20; 0 if a dataset names no environment),
            ``evaluate_limit`` (200_000: steps after which an evaluation episode is cut and counts
            with its return so far), ``evaluate_every`` and ``log_every`` (in updates while offline,
            then in steps), ``checkpoint_minutes`` (5); ``stop_at`` (stop when an evaluation's mean
            return over the seeds reaches it), ``patience`` (stop after that many evaluations
            without improvement), ``time_budget`` (stop after minutes of work, or text such as
            "1h30m"), ``keep`` ("best": also keep the policy of each seed's best evaluation); for
            the dataset ``share`` (0.5), ``top`` (1.0: use only this share of the episodes, those
            with the largest returns), ``sampling`` (uniform, episodes, return) and ``unchecked``
            (learn even from a broken file); ``online`` (fields of the Config that change when the
            online phase starts); ``then`` (further phases, each a text or a dict, as
            ``"steps=60_000 environment=Acrobot-v1 lr=1e-4"``; see docs/phases.md); ``guide`` (the
            folder of an earlier run whose policy helps to act, with ``guiding`` and
            ``guide_steps``; or a :class:`~sterling.training.config.run_options.Guidance`); ``init``
            (what the agents start from: an earlier run's folder, one of its seeds as
            ``"runs/earlier:seed=3"``, or a file of weights; see docs/warm-starts.md); ``augment``
            (a data augmentation, as ``"gaussian:0.0003"``); ``sources`` (layers around its
            rollouts, as ``"plr"`` or ``"pool:4,10000"``); ``plasticity`` (as ``"reset:200_000"``;
            see docs/plasticity.md); ``hindsight`` (how goals in the replay are relabelled, as
            ``"future"``); ``critic_obs`` or ``obs`` (entries of a dict observation that only the
            critic gets, or the only ones that the policy gets; see docs/critic-obs.md); ``encoder``
            (of observations: nature, impala, grid, drq, flat, ``"my_nets.py:make"`` or the
            function; see docs/networks.md); ``teacher`` (the folder of a run that ``distill``
            imitates); ``return_within`` (``(low, high)``, bounds of returns in an environment of
            your own; None for an end without a bound) and ``failed`` (what a failed seed counts as
            in the result: a number, "worst" or "exclude"); for a language model the fields of
            :class:`~sterling.training.config.run_options.LanguageSettings` (``model``, ``levels``,
            ``judge``, ``texts``, ...); ``tensorboard`` (True: also write metrics to
            OUT/tensorboard), ``wandb`` (a project of Weights & Biases), ``quiet`` (default:
            progress on standard error, none in worker processes; True: none; False: on standard
            output); every field of the Config,
            where a float field takes a schedule too, as ``lr="linear:3e-4:0"`` (docs/schedules.md);
            and every option of the environment, such as ``max_episode_steps=200``, if the Config
            has no such field.

    Raises:
        Mistake: a usage error, in one line.
        WorldFailed: an environment that cannot be built or stepped, or fails again and again.
        SystemExit: code 75 after SIGTERM, SIGHUP or Ctrl-C, once the run has been saved.
    """
    named = {
        **{"algorithm": algorithm, "environment": environment, "data": data, "seeds": seeds},
        **{"steps": steps, "updates": updates, "out": out},
    }
    given = {name: value for name, value in named.items() if value is not None} | options
    asked = train_arguments(config, given)
    check_argument_types(**asked)
    check_sinks(sinks)
    check_callbacks(callbacks)
    shown = {name: asked.pop(name) for name in OUTPUT_OPTIONS if name in asked}
    out = asked.pop("out", None)
    settings = settings_from_arguments(asked)
    check_dump_folder(settings.speech)
    say_that_log_is_missing(settings)
    enable_compilation_cache()
    if out is None:
        return _run_to_end(settings, None, sinks, callbacks, **shown)
    user_code_words.check_can_be_stored(settings)
    path = run_folder.create(out)
    user_code_words.warn_of_unstored(settings.to_json())
    schedule_fields.warn_of_functions(settings.schedules)
    try:
        return _run_to_end(settings, path, sinks, callbacks, **shown)
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()  # succeeds only if the run could not begin and nothing was written


def settings_from_arguments(asked: dict[str, Any]) -> Settings:
    """Return a run's settings from its arguments by name."""
    algorithm, environment = asked.pop("algorithm"), asked.pop("environment", None)
    phases, data = parse_phases(asked.pop("then", ())), asked.pop("data", None)
    how = {name: asked.pop(name) for name in LOG_OPTIONS if name in asked}
    spoken = {name: asked.pop(name) for name in SPEECH_OPTIONS if name in asked}
    names = (*SETTINGS_ARGUMENTS, "preset")
    known = {name: asked.pop(name) for name in names if name in asked}
    if spoken:
        known["speech"] = LanguageSettings(**spoken)
    log = make_log_settings(data, **how)
    acts, texts = known.get("steps", 0), spoken.get("texts", "")
    measured = known.get("evaluate_every") is None or (texts and spoken.get("held_out"))
    usual = None if measured else 20
    own, episodes = known.get("env_options"), known.get("evaluate_episodes", usual)
    world, _ = choose_environment(log, environment, own, episodes, acts, texts=texts)
    fields, more = sort_options(algorithm, world, asked, TRAIN_ARGUMENTS)
    own = join_env_options(own, more)
    _, known["env_options"] = choose_environment(log, environment, own, episodes, acts, texts=texts)
    if not world and episodes is None:
        known |= {"evaluate_episodes": 0} if log is None else without_evaluation(log)
    known["init"] = resolve_init(known.get("init"), seed_numbers(known.get("seeds", 1)))
    settings = resolve_settings(algorithm, world, fields=fields, data=log, phases=phases, **known)
    report_budget(settings)
    return fill_from_log(settings)


@checked_first()
def resume(
    path: str | Path,
    *,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Any] = (),
    environment: Any = None,
    env: Mapping[str, Any] | None = None,
    algorithm: Any = None,
    steps: int | None = None,
    updates: int | None = None,
    then: Any = (),
    schedules: Mapping[str, Any] | None = None,
    tensorboard: bool = False,
    wandb: str | None = None,
    quiet: bool | None = None,
    **stops: Any,
) -> TrainedRun:
    """Resume a stopped run from its last checkpoint; return a finished run as it is.

    Args:
        path: the run's folder.
        sinks: further receivers of metrics rows.
        callbacks: as in :func:`train`. They are not stored, so they must be given again.
        environment, algorithm: must be given again if the run was made with objects that cannot be
            imported, such as a lambda or an object of a script. With ``steps`` for a run that only
            learned from a dataset, ``environment`` is where it acts (default: the run's own).
        env: new values of options of the environment in which the run goes on, as
            ``{"max_failures": 1000}``; its other options stay.
        steps: a larger budget than before, also for a finished run (None: the same). Schedules,
            such as the learning rate's, are stretched to it. A run that only learned from a dataset
            continues online, as if it had had ``updates`` and ``steps`` from the start.
        updates: the same, for a run that only learns from a dataset or trains a language model.
        then: further phases, as in :func:`train`, also for a finished run.
        schedules: the functions of fields whose schedules could not be stored, by field.
        tensorboard, wandb, quiet: as in :func:`train`; they are not stored with the run.
        **stops: ``stop_at``, ``patience`` and ``time_budget``, which replace those of the run;
            "off" removes one. A run that has stopped early goes on if one of them, or a budget, is
            given; a budget also removes those that are not given.
    """
    shown = {"tensorboard": tensorboard, "wandb": wandb, "quiet": quiet}
    check_argument_types(**shown)
    check_load_arguments(path=path, environment=environment, algorithm=algorithm)
    check_sinks(sinks)
    path = Path(path)
    check_callbacks(callbacks)
    online = online_environment(path, environment) if steps else ""
    settings = read_settings(path, None if online else environment, algorithm)
    functions = schedule_fields.given_again(settings.algorithm, settings.schedules, schedules or {})
    settings = dataclasses.replace(settings, schedules=functions)
    if steps or updates or then or stops or run_folder.read_result(path) is None:
        schedule_fields.check_all_given(settings.schedules)  # before anything is written
    more = {"steps": steps, "updates": updates, "stops": stops, "then": parse_phases(then)}
    settings = extend_run(path, settings, online, {} if env is None else env_arguments(env), more)
    enable_compilation_cache()
    if run_folder.read_result(path) is not None:
        return load(path, environment=environment, algorithm=algorithm)
    return _run_to_end(settings, path, sinks, callbacks, **shown)


def _run_to_end(
    settings: Settings,
    path: Path | None,
    sinks: Sequence[Sink],
    callbacks: Sequence[Any],
    **shown: Any,
) -> TrainedRun:
    """Train, with the sinks that ``shown`` asks for, and draw the curve."""
    check_memory(settings)
    if settings.speech is not None:
        from sterling.training.language.resolve_language_settings import resolve_language_settings

        settings = resolve_language_settings(settings)  # imported here: tokenizers take time
    where = settings.name or settings.file_name
    count = len(settings.seeds)
    title = f"{settings.title.upper()} on {where}, {count} seed{'s'[: count > 1]}"
    about = (title, settings.seeds, settings.updates + settings.steps)
    with requested_sinks(path, about, **shown) as more:
        ahead = [] if path is None else [CurveImports()]
        with run_end.resume_command_in_failures(settings, path):
            run = _train_with_sinks(settings, path, [*sinks, *more, *ahead], callbacks)
    return run_end.with_curve(run, path)


def _train_with_sinks(
    settings: Settings, path: Path | None, sinks: Sequence[Sink], callbacks: Sequence[Any]
) -> TrainedRun:
    for sink in sinks:
        if hasattr(sink, "return_within"):  # sinks that show returns with intervals
            sink.return_within = run_return_bounds(settings)
    run = train_in_processes if settings.strategy == "processes" else train_in_process
    with program_store.opened(settings):
        return run(settings, path, sinks, callbacks)


__all__ = ["Callback", "Event", "TrainedRun", "load", "resume", "train"]
