"""``sterling evaluate FOLDER``: evaluate a trained policy, in its environment or from a dataset."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sterling.commands import evaluate_language, train
from sterling.commands.options import option_values
from sterling.commands.output import json_output

DEFAULT_EPISODES = 20  # per seed
METHODS = ("fqe", "model", "is", "wis", "pdis", "wpdis", "dr", "wdr")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling evaluate``."""
    add = parser.add_argument
    several = "the run's folder; several are ranked, by returns or with --method by estimates"
    add("folder", nargs="+", metavar="FOLDER", type=Path, help=several)
    add(
        "--episodes",
        type=option_values.integer,
        metavar="N",
        help=f"episodes per seed ({DEFAULT_EPISODES})",
    )
    ends = "stop an episode after N steps and use its return so far (the run's own limit)"
    add("--evaluate-limit", type=option_values.integer, metavar="N", help=ends)
    which = "evaluate in the environment of phase K, counted from 1 (the last phase)"
    add("--phase", type=option_values.integer, metavar="K", help=which)
    train.add_return_options(add)
    log = "a dataset to compare with or estimate from (the one that the run was trained from)"
    add("--data", type=Path, metavar="FILE", help=log)
    as_json = "print what was found as JSON: one object, with every interval"
    add("--json", action="store_true", help=as_json)
    _add_estimator_options(parser)
    evaluate_language.add_options(parser)


def _add_estimator_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of off-policy evaluation."""
    group = parser.add_argument_group(
        "without an environment",
        "off-policy evaluation: estimates from the dataset alone; see docs/offpolicy.md",
    )
    add = group.add_argument
    add("--method", choices=METHODS, help="the estimator; fqe works for every policy")
    add(
        "--gamma",
        type=option_values.number,
        default=0.99,
        metavar="X",
        help="discount per step (0.99)",
    )
    learned = "gradient updates of a learned method (fqe, dr, wdr: 10_000, model: 5000)"
    add("--updates", type=option_values.integer, metavar="N", help=learned)
    which = "with --method: whether the policy samples actions or takes its mode (mode for fqe and "
    which += "model, else sampled); always: last, best for a run that was trained with "
    which += "--keep best, or prior for a planner without its planning (last)"
    add("--policy", choices=("sampled", "mode", "last", "best", "prior"), help=which)
    known = "action probabilities for importance sampling: the dataset's log_prob (logged, default "
    known += "if it has them) or those of a cloned behaviour policy (cloned)"
    add("--behaviour", choices=("logged", "cloned"), help=known)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print each seed's return or estimate, and what to compare them with."""
    import sterling
    from sterling.evaluation import evaluate_run, run_evaluation
    from sterling.training.runtime.program_store import use_on_command_line

    use_on_command_line()
    names = [name for name in evaluate_run.EVALUATE_ARGUMENTS if name not in ("run", "phase")]
    options = {name: getattr(chosen, name) for name in names}
    if len(chosen.folder) > 1:
        folders = [folder.expanduser() for folder in chosen.folder]
        ranking = evaluate_run.evaluate(folders, phase=chosen.phase, **options)
        json_output.print_json(ranking) if chosen.json else print(repr(ranking))
        return 0
    chosen.folder = chosen.folder[0].expanduser()
    run = sterling.load(chosen.folder, phase=chosen.phase)
    run, options = run_evaluation.chosen_policies(run, options)
    if chosen.policy == "best":
        progress = run.result.get("best", {}).get("progress", [])
        _remark(
            chosen, f"policy     best, of {', '.join(map(str, progress)) or 'an unfinished run'}"
        )
    run_evaluation.check_options(run, options)
    if evaluate_language.is_asked(chosen):
        return evaluate_language.carry_out(chosen, run)
    path = run_evaluation.training_log(run)
    if chosen.method is None and chosen.data is None and path is not None and not path.exists():
        gone = (
            f"The run's dataset {path} does not exist any more. If it was moved, pass --data FILE."
        )
        _remark(chosen, gone)
    found: Any = evaluate_run.evaluate(run, **options)
    if chosen.json:
        json_output.print_json(found)
    elif found.log is None:
        _print_returns(found, DEFAULT_EPISODES if chosen.episodes is None else chosen.episodes)
    else:
        _print_estimates(found)
    return 0


def _remark(chosen: argparse.Namespace, line: str) -> None:
    """Print a line about the evaluation: beside the result where that is JSON."""
    print(line, file=sys.stderr if chosen.json else sys.stdout)


def _print_estimates(found: Any) -> None:
    """Print what a dataset says of each seed and of all."""
    for seed, score in found.per_seed.items():
        print(f"seed {seed:<5} {score:.6g}")
    print(f"\n{found.title}" if found.per_seed else found.title)
    _print_table(list(found.estimates.items()))


def _print_returns(found: Any, episodes: int) -> None:
    """Print each seed's return, and the mean return and the other channels with intervals."""
    for seed, score in found.per_seed.items():
        print(f"seed {seed:<5} {'failed' if score is None else f'{score:.6g}'}")
    print(f"return     {found.estimates['return'].full_text()}, {episodes} episodes each")
    for name, channel in found.estimates.items():
        if name != "return":
            print(f"{name:<10} {channel.full_text()}")
    for each in found.cautions:
        print(f"{'note':<10} {each}")


def _print_table(lines: list[tuple[str, Any]]) -> None:
    """Print a table of names, estimates, and the level and method of their intervals."""
    left, middle = (max(len(str(line[at])) for line in lines) for at in (0, 1))
    for name, found in lines:
        print(f"{name:<{left}}  {found!s:<{middle}}  {found.level:.0%}, {found.method}")
