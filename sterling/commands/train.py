"""``sterling train ALGORITHM ENVIRONMENT --steps N``: train several seeds in one program.

``sterling train ALGORITHM FILE --updates N`` learns from a dataset; with ``--steps`` too, training
then continues in the environment.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.algorithms import ALGORITHMS
from sterling.commands.options import (
    algorithm_options,
    option_values,
    steering_options,
    training_options,
)
from sterling.commands.output import training_output
from sterling.lookup import entry_points, user_imports

LOG_AND_LANGUAGE_OPTIONS = (  # the options for datasets and for language models
    *("share", "top", "sampling", "unchecked", "augment"),
    *("model", "teacher", "levels", "held_out", "judge", "rubric", "judge_limit"),
    *("rewards", "rewards_each", "right_if", "curriculum"),
    *("agent", "agent_seconds", "agent_turns", "agent_tokens", "agent_contexts"),
    *("agent_top_logprobs", "agents_at_once", "failed_reward"),
    *("texts", "examples", "context", "slots"),
    *("scene_seconds", "dump", "replay", "pool", "lora", "forget"),
)
FORWARDED_OPTIONS = (
    *("steps", "updates", "seeds", "envs", "strategy", "preset", "evaluate_episodes"),
    *("evaluate_every", "evaluate_limit", "checkpoint_minutes", "log_every", "out"),
    *("return_within", "failed", "sources", "plasticity", "hindsight", "max_episode_steps"),
    *("critic_obs", "obs", "encoder", "init"),
    *("stop_at", "patience", "time_budget", "keep"),
    *("guide", "guiding", "guide_steps", "tensorboard", "wandb", "quiet"),
    *LOG_AND_LANGUAGE_OPTIONS,
)


def add_options_for(parser: Any, words: Sequence[str]) -> None:
    """Add the options of ``sterling train``, and the settings of the algorithm among ``words``."""
    add_options(parser)
    algorithm = training_options.find_algorithm(parser, words)
    if algorithm is None:
        parser.set_defaults(algorithm_of_fields=None)
        parser.lenient = True  # without the algorithm, its settings look like unknown options
        names = ", ".join(ALGORITHMS)
        parser.description = (
            f"Algorithms: {names}. `sterling train ALGORITHM --help` also lists its settings."
        )
        return
    parser.set_defaults(algorithm_of_fields=algorithm)
    parser.description, parser.about = algorithm_options.algorithm_summary(algorithm), algorithm
    parser.usage = parser.usage.replace("ALGORITHM", algorithm)
    about, own = algorithm_options.config_fields(algorithm)
    group = parser.add_argument_group(f"settings of {user_imports.short_name(algorithm)}", about)
    for field in own:
        field.add_to(group)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every algorithm has."""
    budgets = "[--steps N] [--updates N]"
    parser.usage = f"sterling train [ALGORITHM ENVIRONMENT|FILE] {budgets} [options]"
    add = parser.add_argument
    which = "see: sterling list algorithms; or your own: FILE.py or package.module"
    add("algorithm", nargs="?", metavar="ALGORITHM", help=which)
    where = "see: sterling list environments; or your own: FILE.py:factory; or a dataset"
    add("world", nargs="?", metavar="ENVIRONMENT", help=where)
    training_options.add_config_option(add)
    add("--steps", type=option_values.integer, metavar="N", help="environment steps per seed")
    which = "number of seeds, or a list of them such as 3,7,8 (1)"
    add("--seeds", type=option_values.seeds, metavar="N", help=which)
    folder = "folder of the run (runs/ALGORITHM-ENVIRONMENT-TIME)"
    add("--out", type=Path, metavar="FOLDER", help=folder)
    add("--envs", type=option_values.integer, metavar="N", help="parallel environments per seed")
    training_options.add_environment_options(add)
    ways = "how seeds run: all at once (vmap), one after another (map), or in processes"
    add("--strategy", choices=("vmap", "map", "processes"), help=ways)
    training_options.add_init_option(add)
    training_options.add_preset_option(add)
    _add_interval_options(add)
    steering_options.add_options(parser)
    add_source_options(add)
    add_return_options(add)
    add_log_options(parser)
    _add_online_options(parser)
    training_options.add_language_options(parser)
    training_options.add_agent_options(parser)
    training_output.add_options(parser)


def _add_interval_options(add: Any) -> None:
    """Add the options for when a run is evaluated, logged and saved."""
    per_seed = "episodes per seed in an evaluation (20; 0 if a dataset names no environment)"
    add("--evaluate-episodes", type=option_values.integer, metavar="N", help=per_seed)
    ends = "stop an episode of an evaluation after N steps, with its return so far (200_000)"
    add("--evaluate-limit", type=option_values.integer, metavar="N", help=ends)
    between = "steps or updates between evaluations; default: only at the end, but with a dataset "
    between += "a tenth of the budget"
    add("--evaluate-every", type=option_values.integer, metavar="N", help=between)
    rows = "steps or updates between rows of metrics (a hundredth of the budget)"
    add("--log-every", type=option_values.integer, metavar="N", help=rows)
    saves = "minutes between checkpoints (5)"
    add("--checkpoint-minutes", type=option_values.number, metavar="X", help=saves)


def add_source_options(add: Any) -> None:
    """Add the options for how experience is collected and replayed."""
    around = "wrappers of the rollouts, joined by +; see: sterling list sources"
    add("--sources", metavar="WORD", help=around)
    anew = "replace goals in replay by achieved ones (hindsight): future, final, episode, random, "
    anew += "or future:0.8 for a share (docs/goals.md)"
    add("--hindsight", metavar="WORD", help=anew)
    upkeep = "keep networks able to learn: reset:EVERY, perturb:EVERY,KEEP, decay:RATE; and units, "
    upkeep += "which logs dormant units; joined by + (docs/plasticity.md)"
    add("--plasticity", metavar="WORDS", help=upkeep)
    hidden = "entries of a dict observation that the critic gets and the policy does not, such as "
    hidden += "state (docs/critic-obs.md)"
    add("--critic-obs", metavar="NAMES", help=hidden)
    add("--obs", metavar="NAMES", help="the only entries that the policy gets; the critic gets all")
    encoded = "how observations become features: nature, impala, grid, drq, flat, or your own: "
    encoded += "FILE.py:function (docs/networks.md)"
    add("--encoder", metavar="WORD", help=encoded)


def add_return_options(add: Any) -> None:
    """Add the options for the bounds of returns and for failed seeds."""
    ends = "bounds of returns, for an environment of your own: 0,500, or '0,' for no upper bound"
    add("--return-within", type=option_values.bound_pair, metavar="LOW,HIGH", help=ends)
    counts = "what a failed seed counts as: a number, worst or exclude; without it, runs with "
    counts += "failed seeds have no single estimate"
    add("--failed", type=option_values.failed_score, metavar="SCORE", help=counts)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for learning from a dataset."""
    add = parser.add_argument_group("learning from a dataset").add_argument
    offline = "offline updates, before any environment step"
    add("--updates", type=option_values.integer, metavar="N", help=offline)
    judged = "environment to evaluate in, and with --steps to act in (the one that FILE names)"
    add("--environment", metavar="ENV", help=judged)
    add("--data", type=Path, metavar="FILE", help="the dataset, if ENVIRONMENT is not a file")
    of_batch = "share of each batch that is from the dataset during the online phase (0.5)"
    add("--share", type=option_values.number, metavar="X", help=of_batch)
    best = "use only this share of the episodes, those with the largest returns (1)"
    add("--top", type=option_values.number, metavar="X", help=best)
    drawn = "how rows are sampled: all rows equally often (uniform), all episodes equally often "
    drawn += "(episodes), or episodes weighted by return (return); default: uniform"
    add("--sampling", metavar="WORD", help=drawn)
    changed = (
        "augment every batch, for example gaussian:0.0003, reflection:-+/- or (pictures) shift:4; "
    )
    changed += "see docs/relabel.md"
    add("--augment", metavar="CHANGE", help=changed)
    broken = "train even if sterling data check finds errors in the dataset"
    add("--unchecked", action=argparse.BooleanOptionalAction, help=broken)


def _add_online_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for continuing online, after a dataset or with an earlier run as guide."""
    add = parser.add_argument_group("online phase and further phases").add_argument
    guide = "a run whose policies help to act (needs --steps)"
    add("--guide", type=Path, metavar="FOLDER", help=guide)
    way = "how the guide helps: jump-start (it begins every episode) or expansion (a critic "
    way += "chooses who acts); default: jump-start"
    add("--guiding", metavar="WAY", help=way)
    late = "jump-start: the latest step of an episode at which the learner takes over"
    add("--guide-steps", type=option_values.integer, metavar="N", help=late)
    later = "a setting that takes effect when the online phase starts, such as alpha=0.4; may be "
    later += "repeated"
    add(
        "--online",
        type=option_values.key_value,
        action="append",
        default=[],
        metavar="KEY=X",
        help=later,
    )
    add_then_option(add)


def add_then_option(add: Any) -> None:
    """Add the option for further phases of a run."""
    after = (
        "a further phase, such as 'steps=60_000 environment=Acrobot-v1 lr=1e-4'; may be repeated"
    )
    add("--then", action="append", default=[], metavar="WORDS", help=after)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train, and print the result; return 1 if every seed failed."""
    import sterling
    from sterling import algorithms
    from sterling.envs.registry import find_backend
    from sterling.training.config.run_arguments import train_arguments
    from sterling.training.runtime.program_store import use_on_command_line

    use_on_command_line()
    asked = train_arguments(chosen.config, command_line_arguments(chosen))
    algorithm, environment, data = (
        str(asked["algorithm"]),
        asked.get("environment"),
        asked.get("data"),
    )
    algorithms.find(algorithm)  # raises Mistake for a wrong name, before any work
    entry_points.warn_of_clashes(entry_points.ALGORITHMS, {algorithm} & set(ALGORITHMS))
    if environment and not algorithm_options.is_language_algorithm(algorithm):
        find_backend(environment)
    learned_from = data or asked.get("texts")
    what = user_imports.short_name(environment or (Path(learned_from).stem if learned_from else ""))
    asked.setdefault("out", Path("runs") / run_name(algorithm, what))
    asked.setdefault("quiet", False)
    return training_output.print_summary(sterling.train(**asked))


def command_line_arguments(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``sterling.train`` that are given on the command line."""
    given = {name: getattr(chosen, name) for name in FORWARDED_OPTIONS}
    words = place_words(chosen)
    if words.algorithm is not None:
        given["algorithm"] = words.algorithm
        given["environment"], given["data"] = environment_and_log(words)
    else:
        given |= {"environment": chosen.environment, "data": chosen.data}
    made = {name: value for name, value in given.items() if value is not None}
    made |= config_values(chosen)
    for name, typed in (("env", dict(chosen.env)), ("online", dict(chosen.online))):
        made |= {name: typed} if typed else {}
    return made | ({"then": chosen.then} if chosen.then else {})


def place_words(chosen: argparse.Namespace) -> argparse.Namespace:
    """Return the options with a single word as the environment, if the file of settings names the
    algorithm and the word does not."""
    if chosen.config is None or chosen.algorithm is None or chosen.world is not None:
        return chosen
    from sterling import algorithms
    from sterling.training.config.config_file import read_config_file

    in_file = read_config_file(chosen.config).get("algorithm")
    if in_file is None or algorithms.import_path(chosen.algorithm) is not None:
        return chosen
    return argparse.Namespace(**vars(chosen) | {"algorithm": in_file, "world": chosen.algorithm})


def run_name(algorithm: str, what: str) -> str:
    """Return the name of a folder for a run or study of an algorithm on ``what``, with the time."""
    words = f"{user_imports.short_name(algorithm)}-{user_imports.short_name(what)}"
    now = datetime.datetime.now()
    return f"{words.replace('/', '-').replace(':', '-')}-{now:%Y%m%d-%H%M%S}"


def environment_and_log(chosen: argparse.Namespace) -> tuple[str | None, Path | None]:
    """Return the environment and the dataset. The word ENVIRONMENT may name either: it is a dataset
    if a file of that name exists; without it, --environment and --data name them."""
    if chosen.world is None:
        return chosen.environment, chosen.data
    outside = chosen.world.endswith(user_imports.PYTHON_SUFFIX)  # an environment without ":factory"
    no_log = outside or not Path(chosen.world).exists()
    if algorithm_options.is_language_algorithm(chosen.algorithm) or (
        chosen.environment is None and no_log
    ):
        return chosen.world, chosen.data
    if chosen.data is not None:
        from sterling.types import Mistake

        raise Mistake(f"Two datasets are given, {chosen.world} and {chosen.data}. Give one.")
    return chosen.environment, Path(chosen.world)


def config_values(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of the algorithm's Config that were set on the command line."""
    algorithm = getattr(chosen, "algorithm_of_fields", None) or chosen.algorithm
    if algorithm is None:
        return {}
    names = [field.name for field in algorithm_options.config_fields(algorithm)[1]]
    return {name: getattr(chosen, name) for name in names if hasattr(chosen, name)}
