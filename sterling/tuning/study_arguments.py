"""The arguments of a study, as ``sterling.tune`` takes them: all names, and what each of them sets.

A value fixes a field of the Config (``lr=3e-4``), and a range searches it (``lr="1e-5..1e-2"``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterling import algorithms
from sterling.lookup import user_imports
from sterling.nets.encoding.encoder_choice import check_can_be_stored, encoder_reference
from sterling.schedule_words import storable_values
from sterling.system.mistake import Mistake
from sterling.system.terminal_messages import print_notice
from sterling.training.assembly import run_dataset
from sterling.training.config.config_file import check_names, env_arguments, with_config_file
from sterling.training.config.run_arguments import (
    LOG_OPTIONS,
    SPEECH_OPTIONS,
    TRAIN_ARGUMENTS,
    config_names,
    environment_option_names,
    join_env_options,
    sort_options,
)
from sterling.tuning import trial_objective
from sterling.tuning.search_space import default_ranges, is_range, parse_ranges
from sterling.tuning.study_progress import StudyProgress
from sterling.tuning.study_settings import seed_list

FIRST_TEST_SEED = 1_000

SEARCH_OPTIONS = ("eta", "least", "generations", "quantile")
STUDY_OPTIONS = (
    *("envs", "strategy", "preset", "env_options", "evaluate_episodes", "log_every", "augment"),
    *(
        "sources",
        "plasticity",
        "hindsight",
        "critic_obs",
        "obs",
        "encoder",
        "return_within",
        "failed",
    ),
)
NAMED = (
    *("algorithm", "environment", "steps", "updates", "data", "trials", "seeds", "test_seeds"),
    *("search", "space", "set", "objective", "metric", "out", "key", "parallel", "workers"),
    "quiet",
)
TUNE_ARGUMENTS = (*NAMED, *SEARCH_OPTIONS, *STUDY_OPTIONS, *LOG_OPTIONS, *SPEECH_OPTIONS)
DEFAULTS: dict[str, Any] = {
    **{"steps": 0, "updates": 0, "trials": 32, "seeds": 5, "test_seeds": 10},
    **{"search": "random", "metric": "return", "key": 0},
}


def study_arguments(config: str | Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a study: those given, below them those of the file ``config``, and
    the defaults. Raise Mistake for a name in the file that is none of the study's."""
    named = dict(given)
    if "env" in named:
        if "env_options" in named:
            raise Mistake("env and env_options are the same argument. Leave one out.")
        named["env_options"] = env_arguments(named.pop("env"))
    made = with_config_file(config, named)
    if "algorithm" not in made:
        raise Mistake("A study needs an algorithm and an environment: give both, or --config FILE.")
    if config is not None:
        made = _without_run_options(config, made, named)
    return DEFAULTS | made


def _without_run_options(
    config: str | Path, made: dict[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments without those of the file that only a single run has; a notice names
    them. Raise Mistake for unknown names."""
    fields = config_names(made["algorithm"])
    known = [*TUNE_ARGUMENTS, *fields, *given]
    unused = [name for name in made if name not in known and name in TRAIN_ARGUMENTS]
    left = [name for name in made if name not in (*known, *unused)]
    options = environment_option_names(made.get("environment")) if left else set()
    check_names(config, left, [*fields, *TUNE_ARGUMENTS, *(options or ())])
    if unused:
        print_notice(f"{config}: {', '.join(unused)} is for sterling train alone; a study has none")
    return {name: value for name, value in made.items() if name not in unused}


def fixed_and_searched(
    algorithm: Any, fields: Mapping[str, Any], asked: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the fields that are fixed, and the space to search (None: the algorithm's own).

    Takes ``space`` and ``set`` from the arguments ``asked``: a mapping, or texts as on the command
    line. Raise Mistake for a field that is given twice.
    """
    word = algorithms.reference_to(algorithm)
    kinds = {each.name: str(each.type) for each in dataclasses.fields(algorithms.find(word).Config)}
    searched = {name: value for name, value in fields.items() if is_range(value, kinds[name])}
    fixed = {name: value for name, value in fields.items() if name not in searched}
    for name, value in _plain_names(env_arguments(asked.pop("set", None) or {})).items():
        if name in fields:
            raise Mistake(f"{name} is given twice, also in set. Leave one out.")
        fixed[name] = value
    space = _read_space_argument(word, asked.pop("space", None))
    if not searched:
        return fixed, space
    if both := [name for name in searched if name in (space or {})]:
        raise Mistake(f"{both[0]} is given twice, also in space. Leave one out.")
    return fixed, {**(space or {}), **searched}


def _plain_names(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in given.items()}


def _read_space_argument(algorithm: str, given: Any) -> dict[str, Any] | None:
    """Return the space from a mapping, or from texts FIELD=RANGE; the text ``default`` adds the
    algorithm's own."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return _plain_names(given)
    texts = [given] if isinstance(given, str) else [str(each) for each in given]
    own = dict(default_ranges(algorithm)) if "default" in texts else {}
    return own | parse_ranges([text for text in texts if text != "default"])


def sort_arguments(asked: dict[str, Any]) -> tuple[Any, dict[str, Any] | None, dict[str, Any]]:
    """Return the environment, the space to search, and the arguments as study.json has them."""
    algorithm, environment = asked.pop("algorithm"), asked.pop("environment", None)
    data = asked.pop("data", None)
    search_options = {name: asked.pop(name) for name in SEARCH_OPTIONS if name in asked}
    study_options = {name: asked.pop(name) for name in STUDY_OPTIONS if name in asked}
    if "encoder" in study_options:
        study_options["encoder"] = encoder_reference(study_options["encoder"])
        check_can_be_stored(study_options["encoder"])
    log_options = {name: asked.pop(name) for name in LOG_OPTIONS if name in asked}
    speech_options = {name: asked.pop(name) for name in SPEECH_OPTIONS if name in asked}
    log_settings = run_dataset.make_log_settings(data, **log_options)
    own = {name: asked.pop(name) for name in list(asked) if name not in NAMED}
    place = run_dataset.choose_environment(log_settings, environment, None, 1)[0]
    fields, more = sort_options(algorithm, place, own, TUNE_ARGUMENTS)
    if more:
        options = join_env_options(study_options.get("env_options"), more)
        study_options["env_options"] = options
    fixed, space = fixed_and_searched(algorithm, fields, asked)
    seeds, test_seeds = asked["seeds"], asked["test_seeds"]
    return environment, space, {
        "algorithm": algorithms.reference_to(algorithm),
        "steps": asked["steps"], "updates": asked["updates"], "trials": asked["trials"],
        "data": None if log_settings is None else dataclasses.asdict(log_settings),
        "speech": speech_options,
        "seeds": list(seed_list(seeds, 0)),
        "test_seeds": list(seed_list(test_seeds, FIRST_TEST_SEED)),
        "search": asked["search"], "objective": asked.get("objective"),
        "metric": asked["metric"], "key": asked["key"], "parallel": asked.get("parallel"),
        "how": search_options, "known": study_options, "fixed": storable_values(fixed),
    }  # fmt: skip


def study_progress(arguments: dict[str, Any], environment: Any) -> StudyProgress:
    """Return a display of the study's progress."""
    algorithm = user_imports.short_name(arguments["algorithm"])
    path = (arguments["data"] or {}).get("path", "")
    where = user_imports.display_name(environment) if environment else Path(path).stem
    title = f"tuning {algorithm} on {where}, {arguments['search']}"
    combine = trial_objective.seed_combiner(arguments["objective"] or "last")
    return StudyProgress(title, arguments["trials"], combine)
