"""``sterling tune ALGORITHM ENVIRONMENT|FILE``: tune settings, and test them on fresh seeds."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.commands import train
from sterling.commands.options import algorithm_options, option_values, training_options
from sterling.lookup import user_imports

EXAMPLES = """\
examples:
  sterling tune ppo LunarLander-v3 --trials 64 --steps 200_000 --seeds 5 --out runs/lander-study
  sterling tune ppo CartPole-v1 --steps 50_000 --search asha --lr 1e-5..1e-2:log \\
      --epochs 2..20 --activation 'tanh|relu' --minibatch 64
  sterling tune iql data/cheetah --updates 10_000 --trials 16 --seeds 3
  sterling tune grpo reverse-text --model runs/sft --updates 30 --lr 1e-5..1e-3:log
  sterling tune --resume runs/lander-study

searches:
  random    every trial is trained for the full budget
  halving   the best third of a rung is trained for three times the steps
  asha      the same, without waiting for a whole rung
  pbt, pb2  a population whose settings change during training (float fields only)
  optuna    Optuna's sampler (pip install "sterling-rl[tune]")"""
NOTHING_TO_TUNE = (
    "Give ALGORITHM ENVIRONMENT --steps N, or ALGORITHM FILE --updates N for a dataset, or "
    "--config FILE, or --resume FOLDER."
)
FORWARDED_OPTIONS = (
    *("trials", "seeds", "test_seeds", "search", "objective", "key", "parallel", "workers"),
    *("eta", "least", "generations", "quantile", "envs", "strategy", "evaluate_episodes"),
    *("return_within", "failed", "metric", "sources", "hindsight", "max_episode_steps"),
    *("critic_obs", "obs", "encoder", "plasticity"),
    *("log_every", "preset", "updates", "steps", "out", "quiet", "space"),
    *train.LOG_AND_LANGUAGE_OPTIONS,
)


def add_options_for(parser: Any, words: Sequence[str]) -> None:
    """Add the options of ``sterling tune``, and the fields of the algorithm among ``words``."""
    add_options(parser)
    algorithm = training_options.find_algorithm(parser, words)
    parser.set_defaults(algorithm_of_fields=algorithm)
    if algorithm is None:
        return
    parser.about = algorithm
    taken = {action.dest for action in parser._actions}
    about = "A value fixes a field, a range searches it: --lr 3e-4, --lr 1e-5..1e-2:log, "
    about += "--activation 'tanh|relu'."
    title = f"fields of {user_imports.short_name(algorithm)}"
    group = parser.add_argument_group(title, about)
    for field in algorithm_options.config_fields(algorithm)[1]:
        if field.name not in taken:  # such as eta of r2d2: write --set eta=0.9
            field.add_to(group, ranges=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling tune``."""
    given = "ENVIRONMENT --steps N | FILE --updates N"
    parser.usage = f"sterling tune ALGORITHM {given} [options] | --resume FOLDER"
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("algorithm", nargs="?", metavar="ALGORITHM", help="see: sterling list algorithms")
    where = "see: sterling list environments; or a dataset"
    add("world", nargs="?", metavar="ENVIRONMENT", help=where)
    training_options.add_config_option(add)
    add("--resume", type=Path, metavar="FOLDER", help="resume a stopped study")
    add(
        "--steps",
        type=option_values.integer,
        metavar="N",
        help="environment steps per seed of a full training run",
    )
    add(
        "--trials",
        type=option_values.integer,
        metavar="N",
        help="number of configurations; pbt, pb2: size of the population (32)",
    )
    add(
        "--seeds",
        type=option_values.seeds,
        metavar="N",
        help="number of tuning seeds, or a list such as 3,7,8 (5)",
    )
    fresh = "fresh seeds to test the best on: how many (1000, 1001, ...) or a list (10)"
    add("--test-seeds", type=option_values.seeds, metavar="N", help=fresh)
    folder = "folder of the study (runs/tune-ALGORITHM-...-TIME)"
    add("--out", type=Path, metavar="FOLDER", help=folder)
    _add_search_options(parser)
    _add_training_options(parser)
    train.add_source_options(parser.add_argument)
    train.add_return_options(parser.add_argument)
    train.add_log_options(parser)
    training_options.add_language_options(parser)
    training_options.add_agent_options(parser)


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is searched, and how configurations are chosen."""
    add = parser.add_argument
    searches = ("random", "asha", "halving", "pbt", "pb2", "optuna")
    add("--search", choices=searches, help="how configurations are chosen (random)")
    ranges = "a field to search, as --FIELD RANGE does: LOW..HIGH[:log|:1-log] or A|B|C; may be "
    ranges += "repeated; `default` adds the algorithm's own space"
    add("--space", action="append", metavar="FIELD=RANGE", help=ranges)
    fixed = "a field to keep fixed, as --FIELD VALUE does; may be repeated"
    add(
        "--set",
        type=option_values.key_value,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help=fixed,
    )
    goals = "the score of a trial: the last tenth of the training returns (last), the same minus a "
    goals += "standard error over seeds (bound), all training returns (area), or an evaluation at "
    goals += "the end (final); default: last, but final without environment steps"
    add("--objective", choices=("last", "bound", "area", "final"), help=goals)
    what = "what is scored: return, or a channel or summary of the environment (return)"
    add("--metric", metavar="NAME", help=what)
    add("--key", type=option_values.integer, metavar="N", help="random seed of the search (0)")
    add(
        "--workers",
        type=option_values.integer,
        metavar="N",
        help="number of processes (one per core)",
    )
    add(
        "--parallel",
        type=option_values.integer,
        metavar="N",
        help="trials proposed at a time, before any of their results is known",
    )
    _add_searcher_options(add)


def _add_searcher_options(add: Any) -> None:
    """Add the options of single searchers."""
    kept = "asha, halving: one in N trials continues to the next rung (3)"
    add("--eta", type=option_values.integer, metavar="N", help=kept)
    least = "asha, halving: steps of the lowest rung (steps / eta^2)"
    add("--least", type=option_values.integer, metavar="N", help=least)
    add(
        "--generations",
        type=option_values.integer,
        metavar="N",
        help="pbt, pb2: how often settings change (10)",
    )
    share = "pbt, pb2: share of the population that copies a better member (0.25)"
    add("--quantile", type=float, metavar="X", help=share)


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for how each trial is trained."""
    add = parser.add_argument
    add("--envs", type=option_values.integer, metavar="N", help="parallel environments per seed")
    training_options.add_environment_options(add)
    ways = "how trials in one program run: all at once (vmap) or one after another (map, default)"
    add("--strategy", choices=("vmap", "map"), help=ways)
    episodes = "episodes per seed, for --objective final (20)"
    add("--evaluate-episodes", type=option_values.integer, metavar="N", help=episodes)
    add(
        "--log-every",
        type=option_values.integer,
        metavar="N",
        help="steps between rows of metrics (a hundredth of the budget)",
    )
    training_options.add_preset_option(add)
    quiet = "show no progress, only the summary"
    add("--quiet", action=argparse.BooleanOptionalAction, help=quiet)


def carry_out(chosen: argparse.Namespace) -> int:
    """Start or resume a study, and print its result."""
    from sterling.tuning import resume
    from sterling.tuning.study_progress import print_summary
    from sterling.types import Mistake

    if chosen.resume is not None:
        if beside := _options_beside_resume(chosen):
            raise Mistake(f"--resume uses the study's own settings. Leave out {', '.join(beside)}.")
        watch = None if chosen.quiet else _resumed_progress(chosen.resume)
        with contextlib.closing(watch) if watch else contextlib.nullcontext():
            tuned = resume(chosen.resume, workers=chosen.workers, watch=watch)
    else:
        tuned = _start_study(chosen)
    print_summary(tuned.report, tuned.path)
    return 0


def _options_beside_resume(chosen: argparse.Namespace) -> list[str]:
    """Return the given options that --resume takes from the study instead."""
    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser)
    known = [each for each in parser._actions if each.dest not in ("resume", "workers", "quiet")]
    given = [each for each in known if getattr(chosen, each.dest) != each.default]
    return [_typed_option(each, getattr(chosen, each.dest)) for each in given]


def _typed_option(action: argparse.Action, value: Any) -> str:
    """Return an option as it is written to get this value: --no-preset for False."""
    words = action.option_strings or [str(action.metavar)]
    return words[-1] if value is False else words[0]


def _start_study(chosen: argparse.Namespace) -> Any:
    from sterling import algorithms
    from sterling.envs.registry import find_backend
    from sterling.tuning import tune
    from sterling.tuning.study_arguments import study_arguments
    from sterling.types import Mistake

    asked = study_arguments(chosen.config, _command_line_arguments(chosen))
    environment, data = asked.get("environment"), asked.get("data")
    if not (environment or data) or not (asked["steps"] or asked["updates"]):
        raise Mistake(NOTHING_TO_TUNE)
    algorithm = str(asked["algorithm"])
    algorithms.find(algorithm)  # raises Mistake for a wrong name, before any work
    if environment and not algorithm_options.is_language_algorithm(algorithm):
        find_backend(environment)
    what = environment or Path(data or "").stem
    asked.setdefault("out", Path("runs") / f"tune-{train.run_name(algorithm, what)}")
    asked.setdefault("quiet", False)
    return tune(**asked)


def _command_line_arguments(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``sterling.tune`` that are given on the command line."""
    from sterling.types import Mistake

    if chosen.algorithm is None and chosen.config is None:
        raise Mistake(NOTHING_TO_TUNE)
    given = {name: getattr(chosen, name) for name in FORWARDED_OPTIONS}
    words = train.place_words(chosen)
    if words.algorithm is not None:
        given["algorithm"] = words.algorithm
        given["environment"], given["data"] = train.environment_and_log(words)
    else:
        given |= {"environment": chosen.environment, "data": chosen.data}
    made = {name: value for name, value in given.items() if value is not None}
    made |= train.config_values(chosen)
    for name, typed in (("env", dict(chosen.env)), ("set", dict(chosen.set))):
        made |= {name: typed} if typed else {}
    return made


def _resumed_progress(path: Path) -> Any:
    """Return the progress display of an existing study; None if there is nothing to show."""
    from sterling.tuning import stored_study, trial_objective
    from sterling.tuning.study_progress import StudyProgress

    file = path / "study.json"
    if not file.is_file() or (path / "report.json").exists():
        return None  # resume raises Mistake, or has nothing to do
    asked = stored_study.read_study(path)
    algorithm = user_imports.short_name(asked["algorithm"])
    words = f"{algorithm} on {user_imports.short_name(asked['environment'])}"
    title = f"tuning {words}, {asked['search']}, resumed"
    return StudyProgress(title, asked["trials"], trial_objective.seed_combiner(asked["objective"]))
