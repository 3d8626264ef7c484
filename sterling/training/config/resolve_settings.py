"""Resolve a run's settings from defaults, presets and arguments, and check them."""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling import algorithms
from sterling.experience.replay.imagined_rollouts import check_dreams
from sterling.lookup import user_imports
from sterling.needs.feed import EPISODES, FRESH
from sterling.nets.encoding.encoder_choice import encoder_reference
from sterling.schedule_words import storable_values
from sterling.system.mistake import Mistake
from sterling.training.assembly.build_sources import check_sources, kept_extras, with_absolute_files
from sterling.training.config import user_code_words
from sterling.training.config.evaluation_interval import (
    check_stop_options,
    with_evaluation_interval,
)
from sterling.training.config.hindsight_option import check_hindsight
from sterling.training.config.kept_environment_options import kept_options
from sterling.training.config.option_checks import (
    check_beside_log,
    check_critic_obs,
    check_guide,
    check_language_run,
    check_log_and_replay,
)
from sterling.training.config.run_options import LanguageSettings, LogSettings
from sterling.training.config.settings import Settings, check_strategy
from sterling.training.config.stop_options import parse_keep, parse_stop_options
from sterling.training.evaluation.goal_task_scores import check_episodes
from sterling.training.fields.budget_fit import fit_to_budget
from sterling.training.fields.config_fields import (
    check_counts,
    check_layer_sizes,
    check_scoring,
    make_config,
    seed_numbers,
    whole_number,
)
from sterling.training.fields.presets import load_kind_preset, load_preset
from sterling.training.fields.schedule_fields import (
    check_needs,
    say_anneal_is_off,
    split_fields,
    split_with_anneal,
)
from sterling.training.fields.text_budget import default_updates
from sterling.training.fields.unread_fields import check_effect
from sterling.training.phases.phase_sequence import (
    after_first_phase,
    keeps_source,
    learner_needs,
    phase_iterations,
    reads_log_beside,
    total_iterations,
)
from sterling.training.plasticity.network_upkeep import check_plasticity


def resolve_settings(
    algorithm: Any,
    environment: Any,
    *,
    steps: int | float = 0,
    updates: int | float = 0,
    data: LogSettings | None = None,
    online: dict[str, Any] | None = None,
    seeds: Any = 1,
    envs: int | float | None = None,
    strategy: str | None = None,
    preset: bool = True,
    env_options: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    **rest: Any,
) -> Settings:
    """Return a run's settings: defaults, overridden by the preset, overridden by the arguments.

    Whole numbers may be written as floats (1e6); ``seeds`` is a number of seeds or a list. Raise
    Mistake for unknown names, fields and options of a wrong type, and contradictory settings.
    """
    word = algorithms.reference_to(algorithm)
    environment = user_code_words.environment_reference(environment)
    module, algorithm = algorithms.find(word), user_imports.short_name(word)
    tuned = _find_preset(word, environment, env_options, fields, data) if preset else {}
    default_envs = tuned.pop("envs", None) or _default_envs(module)
    options = kept_options(module, environment, tuned.pop("env_options", {}) | (env_options or {}))
    own = _known_fields(module, word, tuned, rest, check_layer_sizes(fields or {}, algorithm))
    config, functions = _read_fields(module, algorithm, own, fields or {})
    strategy = check_strategy(strategy or "map")
    if module.needs(config).speaks:
        rest["speech"] = _speech_settings(algorithm, envs, rest.get("speech"))
    envs = whole_number("envs", default_envs if envs is None else envs, 1)
    config = _limit_minibatch(module, config, envs, fields or {})
    steps, updates = _budgets(module, config, steps, updates, rest.get("speech"))
    config = fit_to_budget(module, algorithm, config, steps if preset else 0, own.keys())
    later = _online_fields(module, algorithm, config, online or {})
    rest |= {"data": data, "updates": updates, "online": later, "schedules": functions}
    settings = Settings(
        *(word, environment, steps, seed_numbers(seeds), envs, strategy, config, options),
        **_parse_options(rest),
    )
    check_settings(settings)
    check_phase_fields(settings)
    return with_evaluation_interval(settings)


def _known_fields(
    module: Any, word: str, tuned: Any, rest: dict[str, Any], given: Any
) -> dict[str, Any]:
    """Return the fields that replace the usual defaults: of the algorithm's name, ``tuned`` for the
    environment, for the model that a language run begins from, and ``given``."""
    own, speech = {**algorithms.preset_fields(word), **tuned}, rest.get("speech")
    if speech is not None and hasattr(module, "TRAINED_FOLDER"):
        from sterling.training.language.model_names import trained_folder_fields

        own |= trained_folder_fields(module, speech)  # imported here: tokenizers take time
    return {**own, **given}


def _budgets(
    module: Any, config: Any, steps: Any, updates: Any, speech: LanguageSettings | None
) -> tuple[int, int]:
    """Return the budgets of steps and updates; with a file of texts alone, the default updates."""
    steps, updates = whole_number("steps", steps), whole_number("updates", updates)
    if speech is not None and module.needs(config).speaks and not steps:
        updates = updates or default_updates(module, config, speech)
    return steps, updates


def _parse_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the other settings of a run, with files and references resolved."""
    words: dict[str, Any] = {"sources": with_absolute_files(given.get("sources") or "")}
    words["encoder"] = encoder_reference(given.get("encoder"))
    made = {**given, **words, **parse_stop_options(given), "keep": parse_keep(given.get("keep"))}
    return check_counts(made) | check_scoring(made)


def _find_preset(
    algorithm: str, environment: Any, options: Any, fields: Any, data: LogSettings | None
) -> dict[str, Any]:
    """Return the preset for the environment, or without a dataset for environments of its kind."""
    own = load_preset(algorithm, environment)
    if own or data is not None:
        return own
    return load_kind_preset(algorithm, environment, options or {}, fields or {})


def _read_fields(
    module: Any, algorithm: str, fields: dict[str, Any], given: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the Config with these fields, and the schedules among them. ``given``: those that the
    caller set."""
    split = split_with_anneal(module, algorithm, fields, given)
    config = make_config(module, split.numbers, algorithm)
    say_anneal_is_off(algorithm, split)
    check_needs(module, algorithm, config, split.schedules)
    check_effect(module, algorithm, config, given)
    return config, split.schedules


def _speech_settings(
    algorithm: str, envs: int | float | None, given: LanguageSettings | None
) -> LanguageSettings:
    """Return the settings of a language run, with a reference to its judge; raise Mistake if a
    number of envs is given."""
    if envs is not None:
        raise Mistake(
            f"{algorithm} has no envs: its fields set the size of a batch. Leave out envs."
        )
    return _with_judge(given or LanguageSettings())


def _with_judge(given: LanguageSettings) -> LanguageSettings:
    """Return language settings with a reference to their judge, and what it is asked if it is a
    language model; Mistake for such a model's settings without one."""
    from sterling.language.worlds.judge_rubric import DEFAULT_RUBRIC, rubric_text
    from sterling.language.worlds.judged_questions import is_model, judge_reference

    judge, rubric = judge_reference(given.judge), rubric_text(given.rubric)
    if is_model(judge):
        rubric = rubric or DEFAULT_RUBRIC  # stored: a later default shall not change the run
    elif rubric or given.judge_limit != LanguageSettings.judge_limit:
        which = "rubric" if rubric else "judge_limit"
        raise Mistake(f"{which} is for a language model that judges: add judge=FOLDER.")
    return dataclasses.replace(given, judge=judge, rubric=rubric)


def _limit_minibatch(module: Any, config: Any, envs: int, given: dict[str, Any]) -> Any:
    """Return the config with the minibatch limited to a rollout's rows, unless the caller set it:
    presets are tuned for more environments than a caller may ask for."""
    needs = module.needs(config)
    if not needs.has_feed(FRESH) or "minibatch" in given or not hasattr(config, "minibatch"):
        return config
    rows = needs.collect * envs
    return dataclasses.replace(config, minibatch=rows) if config.minibatch > rows else config


def _online_fields(
    module: Any, algorithm: str, config: Any, fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields that change when the online phase starts: floats only, because the compiled
    program stays the same; a schedule as its words."""
    split = split_fields(module, algorithm, fields)
    checked = dataclasses.asdict(make_config(module, split.numbers, algorithm))
    for name in fields:
        kinds = {field.name: field.type for field in dataclasses.fields(module.Config)}
        if kinds[name] not in (float, "float"):
            raise Mistake(f"online: {algorithm}'s field {name} changes shapes. Leave it out.")
    later = {name: checked[name] for name in fields}
    changed = dataclasses.replace(config, **later)
    module.needs(changed)  # raises before training begins
    check_effect(module, algorithm, changed, fields)
    return later | storable_values(split.schedules)


def check_settings(settings: Settings) -> None:
    """Raise Mistake if settings contradict each other, or a phase's budget is too small."""
    _check_phase(settings)
    check_stop_options(settings)
    if settings.init is not None and settings.speech is not None:
        raise Mistake("init does not start language models. Use model=RUN.")
    if settings.phases and settings.speech is not None:
        raise Mistake("language models are trained in a single phase. Leave out then.")
    before, number = settings, 2
    while before.phases or (before.updates and before.steps):
        try:
            left = after_first_phase(before)
            assert left is not None
            _check_phase(left, fresh=not keeps_source(before))
        except Mistake as error:
            raise Mistake(f"phase {number}: {error}") from error
        before, number = left, number + 1
    total_iterations(settings)  # raises if they are too many


def check_phase_fields(settings: Settings) -> None:
    """Raise Mistake for a field of a further phase that has no effect there."""
    before, number = settings, 2
    while (left := after_first_phase(before)) is not None:
        given = {} if before.updates and before.steps else before.phases[0].fields
        module = algorithms.find(left.algorithm)
        check_effect(module, f"phase {number}: {left.title}", left.config, given)
        before, number = left, number + 1


def _check_phase(settings: Settings, *, fresh: bool = True) -> None:
    """Raise Mistake for invalid settings of the first phase; ``fresh``: its source is a new one."""
    name = settings.title
    needs = learner_needs(settings)
    if needs.speaks:
        check_language_run(settings, needs)
        if settings.encoder:
            raise Mistake(f"{name} trains a language model, which reads tokens. Leave out encoder.")
    elif settings.speech is not None:
        raise Mistake(f"{name} trains no language model. Leave out model, levels and similar.")
    elif settings.data is None:
        if settings.updates or settings.online:
            raise Mistake("updates (and online fields) need a dataset: add data=FILE (--data FILE)")
        if needs.only_from_logs:
            raise Mistake(f"{name} learns from datasets only: give data=FILE and updates=N")
    elif needs.lives and not reads_log_beside(settings, needs):
        if needs.beside_log:
            own = "reads its dataset beside its own experience"
            raise Mistake(f"{name} {own}. Give steps=N and no updates.")
        raise Mistake(f"{name} learns only from its own experience. Use sac, iql or bc with data.")
    elif needs.only_from_logs and settings.steps:
        raise Mistake(f"{name} learns from datasets only: give updates=N and no steps")
    logged = settings.data is not None and not reads_log_beside(settings, needs)
    check_beside_log(name, needs, settings.data)
    scored = bool(kept_extras(settings.sources))
    check_log_and_replay(name, needs, logged=logged, acts=settings.steps > 0, scored=scored)
    check_dreams(name, needs)
    if settings.augment and needs.lives:
        raise Mistake(f"augment does not support {name}, which learns from rollouts. Use sac.")
    check_guide(settings.guide, needs, acts=settings.steps > 0)
    acts, guided = settings.steps > 0, settings.guide is not None
    check_sources(settings.sources, name, needs, guided=guided, logged=logged, acts=acts)
    check_plasticity(settings)
    check_hindsight(settings.hindsight, name, needs, logged=logged)
    check_episodes(settings, settings.evaluate_episodes)
    check_critic_obs(settings)
    if settings.online and not (settings.steps and settings.updates):
        raise Mistake("online fields need both updates=N and steps=M")
    phase_iterations(settings, fresh=fresh)  # raises if the budget is too small


def _default_envs(module: Any) -> int:
    """Return the default number of envs: that of the default members, 8 for rollouts, 20 for
    rollouts that adapt, 64 for whole episodes, 1 for replay and for learning from each step."""
    needs = module.needs(module.Config())
    if needs.members:
        return int(needs.members)
    if needs.has_feed(EPISODES):
        return 64
    if needs.adapts_rollouts:
        return 20
    return 1 if needs.replays or needs.collect == 1 else 8
