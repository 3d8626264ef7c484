"""Check a study's arguments before anything starts, and build settings, space and searcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sterling import algorithms
from sterling.envs.registry import find_backend
from sterling.lookup.name_suggestions import did_you_mean
from sterling.needs.feed import GENERATED
from sterling.statistics.scores.score_bounds import resolve_failed_score
from sterling.training.assembly import run_dataset
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings, LogSettings
from sterling.training.config.settings import Settings
from sterling.training.config.stop_options import STOP_OPTIONS
from sterling.training.evaluation.scored_channel import bounds_and_direction, is_summary
from sterling.training.fields.config_fields import SEED_LIMIT, seed_numbers, whole_number
from sterling.training.fields.unread_fields import missing_effect
from sterling.training.phases.phase_sequence import acts_in_world, learner_needs, total_iterations
from sterling.tuning import search_space, trial_objective
from sterling.tuning.jobs import member_axis
from sterling.tuning.jobs.parallel_trials import iteration_at
from sterling.tuning.search_space import Fields, Space
from sterling.tuning.searchers.population_training import Population, generation_ends
from sterling.tuning.searchers.searchers import Combine, Searcher, random_generator
from sterling.types import Mistake

SEARCHES = ("random", "asha", "halving", "pbt", "pb2", "optuna")
POPULATIONS = ("pbt", "pb2")
MAX_TRIALS = 1_000_000  # of a study
KEY_LIMIT = 2**32  # the largest that Optuna's samplers accept


def make_searcher(arguments: dict[str, Any], wanted: Space) -> Searcher:
    """Build the searcher that a study asked for."""
    from sterling.tuning.searchers.optuna_search import OptunaSearch
    from sterling.tuning.searchers.pb2 import BanditExplorer
    from sterling.tuning.searchers.searchers import RandomSearch
    from sterling.tuning.searchers.successive_halving import ASHA, SuccessiveHalving

    makers: dict[str, Callable[..., Searcher]] = {
        "random": RandomSearch, "asha": ASHA, "halving": SuccessiveHalving,
        "pbt": Population, "optuna": OptunaSearch,
        "pb2": lambda *parts, **how: Population(*parts, **how, explore=BanditExplorer()),
    }  # fmt: skip
    accepted = {"asha": ("eta", "least"), "halving": ("eta", "least")}
    accepted |= dict.fromkeys(POPULATIONS, ("generations", "quantile"))
    for name in arguments["how"]:
        if name not in accepted.get(arguments["search"], ()):
            raise Mistake(f"the search {arguments['search']} has no option {name}; leave it out")
    combine: Combine = trial_objective.seed_combiner(arguments["objective"])
    budget = arguments.get("updates") or arguments["steps"]
    parts = (wanted, arguments["key"], arguments["trials"], budget, combine)
    return makers[arguments["search"]](*parts, **arguments["how"])


def study_settings(arguments: dict[str, Any], environment: Any) -> Settings:
    """Return the study's settings, with the Config of the defaults."""
    options, updates = dict(arguments["known"]), arguments.get("updates", 0)
    if options.get("strategy") == "processes":
        raise Mistake("a study distributes its trials to processes itself; leave strategy out")
    if stops := [name for name in (*STOP_OPTIONS, "keep") if options.get(name)]:
        raise Mistake(f"the trials of a study have equal budgets. Leave out {', '.join(stops)}.")
    if arguments["steps"] and updates:
        raise Mistake("a study tunes one phase: give steps or updates, not both")
    log_settings = LogSettings(**arguments["data"]) if arguments.get("data") else None
    if arguments.get("speech"):
        options["speech"] = LanguageSettings.from_json(arguments["speech"])
        if options["speech"].dump:
            raise Mistake("the trials of a study would dump into one folder; leave dump out")
    place, options["env_options"] = run_dataset.choose_environment(
        log_settings, environment, options.get("env_options"), 1
    )
    settings = resolve_settings(
        arguments["algorithm"], place, steps=arguments["steps"], updates=updates, data=log_settings,
        seeds=arguments["seeds"], fields=arguments["fixed"], **options,
    )  # fmt: skip
    if settings.speech is not None:
        from sterling.training.language import tokenizer_alphabet  # tokenizers take time to import

        settings = tokenizer_alphabet.with_alphabet(settings)
    return run_dataset.fill_from_log(settings)


def logs_returns(settings: Settings) -> bool:
    """Whether returns are logged during training."""
    needs = learner_needs(settings)
    samples_answers = settings.speech is not None and not settings.speech.replay
    return acts_in_world(settings) or (samples_answers and needs.has_feed(GENERATED))


def study_space(algorithm: str, given: Mapping[str, Any] | None, fixed: Fields) -> Space:
    """Return the space to search: ``given``, or the algorithm's own without the fixed fields."""
    wanted = search_space.read_space(algorithm, given)
    if given is None:  # fixed fields are not searched
        wanted = Space(tuple(each for each in wanted if each.name not in fixed))
    for each in wanted:
        if each.name in fixed:
            raise Mistake(f"{each.name} cannot be both fixed and searched; leave one out")
    if not len(wanted):
        names = ", ".join(search_space.default_ranges(algorithm))
        raise Mistake(
            f"nothing is left to search: {names} are held fixed; name another field's range "
            "(--space FIELD=RANGE)"
        )
    return wanted


def check_study(arguments: dict[str, Any], settings: Settings, wanted: Space) -> None:
    """Raise Mistake for wrong arguments that can be detected before anything starts."""
    search = arguments["search"]
    if search not in SEARCHES:
        near = did_you_mean(search, SEARCHES, f"use one of {', '.join(SEARCHES)}")
        raise Mistake(f"unknown search {search!r}{near}")
    if trial_objective.check_objective(arguments["objective"]) != "final" and not logs_returns(
        settings
    ):
        raise Mistake(
            f"the objective {arguments['objective']} scores logged returns, and "
            f"{arguments['algorithm']} logs none here; use the objective final"
        )
    if overlap := sorted(set(arguments["seeds"]) & set(arguments["test_seeds"])):
        raise Mistake(
            f"seeds {', '.join(map(str, overlap))} are used for tuning and for the test, but "
            "scores on tuning seeds are too high; give other test seeds"
        )
    if arguments["objective"] == "final" and settings.evaluate_episodes < 1:
        raise Mistake("the objective final plays episodes; use evaluate_episodes of 1 or more")
    _check_metric(arguments, settings)
    searcher = make_searcher(arguments, wanted)  # raises for invalid options
    tried = _corner_settings(settings, wanted)
    if arguments["objective"] != "final" and all(total_iterations(each) == 1 for each in tried):
        raise Mistake(
            f"{settings.budget:,} {settings.unit} are one iteration, which is played before "
            "anything is learned: all trials would tie, because the objective "
            f"{arguments['objective']} scores its returns; give more {settings.unit}, or use the "
            "objective final"
        )
    programs = {member_axis.program_key(each) for each in tried}
    if search in POPULATIONS and len(programs) > 1:
        not_float = [each.name for each in wanted if not _is_float_field(settings, each)]
        raise Mistake(
            f"{search} changes settings during training, so it cannot search fields that change "
            f"the compiled program; leave out {', '.join(not_float) or 'gamma with n_step > 1'}"
        )
    if stops := getattr(searcher, "stops", []):
        _check_stops(arguments, stops, settings, wanted)


def _check_metric(arguments: dict[str, Any], settings: Settings) -> None:
    """Raise Mistake for a metric that the world does not declare, that the objective cannot score,
    or that lacks the worst score that failed seeds count as."""
    metric = arguments.get("metric", "return")
    if arguments["objective"] != "final" and is_summary(metric, settings):
        raise Mistake(
            f"{metric} is a number of evaluation episodes, and the objective "
            f"{arguments['objective']} scores those of training; use the objective final"
        )
    within, better = bounds_and_direction(metric, [settings])
    resolve_failed_score(settings.failed, within, better)


def _corner_settings(settings: Settings, wanted: Space) -> list[Settings]:
    """Return the settings at both ends and in the middle of the space. Raise Mistake for a field
    that none of them reads: all trials would train the same."""
    module = algorithms.find(settings.algorithm)
    corners = [wanted.fields(np.full(len(wanted), share)) for share in (0.0, 0.5, 1.0)]
    tried = [member_axis.with_config_fields(settings, corner) for corner in corners]
    for name in corners[0]:
        found = [
            missing_effect(module, each.config, name, corner[name])
            for each, corner in zip(tried, corners, strict=True)
        ]
        if all(found):
            raise Mistake(f"{settings.title}: {found[0]}")
    return tried


def _check_stops(
    arguments: dict[str, Any], stops: list[int], settings: Settings, wanted: Space
) -> None:
    """Raise Mistake where a trial would train nothing between two of ``stops``.

    ``stops`` are the ends of generations or rungs, counted in steps or updates; training proceeds
    by whole iterations.
    """
    drawn = (
        wanted.sample(random_generator(arguments["key"], "trial", i))
        for i in range(arguments["trials"])
    )
    tried = [member_axis.with_config_fields(settings, fields) for fields in drawn]
    by_iterations = {total_iterations(each): each for each in tried}

    def all_distinct(chosen: list[int]) -> bool:
        return all(len({iteration_at(each, stop) for stop in chosen}) == len(chosen)
                   for each in by_iterations.values())  # fmt: skip

    if all_distinct(stops):
        return
    iterations = f"into the {min(by_iterations)} iterations of {settings.budget} {settings.unit}"
    if arguments["search"] in POPULATIONS:
        counts = range(min(by_iterations), 0, -1)
        most = next(n for n in counts if all_distinct(generation_ends(stops[-1], n)))
        raise Mistake(
            f"{len(stops)} generations do not fit {iterations}; ask for generations={most}"
        )
    fit = next(stops[i:] for i in range(len(stops)) if all_distinct(stops[i:]))
    raise Mistake(
        f"{len(stops)} rungs ({', '.join(map(str, stops))}) do not fit {iterations}; at most "
        f"{len(fit)} do: ask for least={fit[0]}"
    )


def _is_float_field(settings: Settings, each: search_space.Dimension) -> bool:
    kinds = {field.name: str(field.type) for field in dataclasses.fields(settings.config)}
    return kinds[each.name] == "float"


def seed_list(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    """Return seeds from their number (counted from ``first``) or from a list."""
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        return seed_numbers(seeds)
    count = whole_number("seeds", seeds, 1)
    if first + count > SEED_LIMIT:
        raise Mistake(f"seeds must lie below 2^31; got {seeds}, from {first} on")
    return seed_numbers(range(first, first + count))


def check_counts(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with counts as whole numbers; raises Mistake where one is invalid."""
    least = {"steps": 0, "updates": 0, "trials": 1, "parallel": 1, "key": 0}
    given = {name: arguments[name] for name in least}
    made: dict[str, Any] = {
        name: None if value is None else whole_number(name, value, least[name])
        for name, value in given.items()
    }
    if made["key"] >= KEY_LIMIT:
        raise Mistake(f"key must be a whole number below 2^32; got {made['key']}")
    for name in ("trials", "parallel"):
        if (made[name] or 0) > MAX_TRIALS:
            raise Mistake(f"{name} is at most {MAX_TRIALS:,}; got {made[name]:,}")
    kept = {name: value for name, value in arguments["how"].items() if value is not None}
    how = {name: value if name == "quantile" else whole_number(name, value, 1)
           for name, value in kept.items()}  # fmt: skip
    return {**arguments, **made, "how": how}


def check_workers(workers: int | None) -> None:
    """Raise Mistake unless ``workers`` is None or at least one."""
    if workers is not None:
        whole_number("workers", workers, 1)


def has_compiled_worlds(environment: Any) -> bool:
    """Whether the environments are compiled programs, which are kept and reset exactly."""
    return find_backend(environment)[0] in ("classic", "gymnax", "probe", "task")
