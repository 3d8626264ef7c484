"""``sterling compare ppo sac --environment X --steps N --until-decided``: train until known."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling import importing
from sterling.algorithms import ALGORITHMS
from sterling.commands import readers

NEEDED = ("environment", "steps")
ABOUT_TRAINING = (*NEEDED, "max_seeds", "per_look", "out", "strategy", "preset")
MAX_SEEDS, PER_LOOK = 30, 5


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    group = parser.add_argument_group(
        "training until it is known",
        "Instead of RUNs: algorithms, as [LABEL=]ALGORITHM[:FIELD=VALUE,...]. Each look trains a "
        "few fresh seeds of those not yet told apart; asked again, a stopped study goes on.",
    )
    add = group.add_argument
    add("--until-decided", action="store_true", help="train, and stop as soon as it is decided")
    add("--environment", metavar="ENVIRONMENT", help="see: sterling list environments")
    add("--steps", type=readers.integer, metavar="N", help="environment steps per seed")
    add("--max-seeds", type=readers.integer, metavar="N", help=f"of each ({MAX_SEEDS})")
    looks = f"fresh seeds a look ({PER_LOOK})"
    add("--per-look", type=readers.integer, metavar="N", help=looks)
    add("--out", type=Path, metavar="FOLDER", help="of the study (runs/compare-...)")
    add("--strategy", choices=("vmap", "map", "processes"), help="how the seeds are run")
    tuned = "leave out the settings tuned for this environment"
    add("--no-preset", dest="preset", action="store_false", default=None, help=tuned)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train until decided, and print what came out."""
    from sterling.notice import say, untold
    from sterling.training.until import until_decided
    from sterling.types import Mistake

    lacking = [f"--{name}" for name in NEEDED if getattr(chosen, name) is None]
    if lacking:
        raise Mistake(f"--until-decided needs {' and '.join(lacking)}")
    if chosen.tasks:
        raise Mistake("--until-decided compares on one --environment: leave out --tasks")
    contenders = _labelled([_contender(text) for text in chosen.runs])
    question = _question(contenders, chosen)
    name = "-".join(["compare", *(each.label for each in contenders), question.environment])
    name = name.replace(question.environment, importing.short(question.environment))
    path = chosen.out or Path("runs") / name.replace("/", "-")
    try:
        with untold():  # how a part goes on by itself: it is the study that goes on
            made = until_decided(question, path, _watch(question, chosen))
    except SystemExit:
        say("the comparison goes on where it stopped when the same command is given again")
        raise
    print(json.dumps(made.to_json(), indent=1) if chosen.json else _told(question, made, path))
    return 0


def _question(contenders: tuple[Any, ...], chosen: argparse.Namespace) -> Any:
    """What the words ask."""
    from sterling.training.outside import word_of_environment
    from sterling.training.until import Question

    given = {"strategy": chosen.strategy, "preset": chosen.preset is not False}
    return Question(
        contenders,
        word_of_environment(chosen.environment),
        chosen.steps,
        MAX_SEEDS if chosen.max_seeds is None else chosen.max_seeds,
        PER_LOOK if chosen.per_look is None else chosen.per_look,
        chosen.alpha,
        chosen.failed,
        chosen.key,
        {name: value for name, value in given.items() if value is not None},
        chosen.about,
        chosen.within,
        chosen.metric,
    )


def _contender(text: str) -> Any:
    """[LABEL=]ALGORITHM[:FIELD=VALUE,...]"""
    from sterling import algorithms
    from sterling.training.until import Contender
    from sterling.types import Mistake

    head, colon, settings = text.rpartition(":")
    listed = head.rpartition("=")[2] in ALGORITHMS
    if not colon or not (listed or "=" in settings):  # my_algorithm.py:Mine names an object
        head, settings = text, ""
    label, equals, algorithm = head.rpartition("=")
    algorithms.find(algorithm)
    shown = text.replace(algorithm, importing.short(algorithm))
    try:
        fields = dict(readers.pair(part) for part in settings.split(",") if part)
    except argparse.ArgumentTypeError as error:
        raise Mistake(f"{text!r}: {error}") from error
    fields = {name.replace("-", "_"): value for name, value in fields.items()}
    return Contender(label if equals else shown, algorithms.word_of(algorithm), fields)


def _labelled(contenders: Sequence[Any]) -> tuple[Any, ...]:
    """Copies of one thing are numbered, so that they can be compared with each other."""
    seen: dict[str, int] = {}
    made = []
    for each in contenders:
        seen[each.label] = seen.get(each.label, 0) + 1
        again = seen[each.label] > 1
        label = f"{each.label}-{seen[each.label]}" if again else each.label
        made.append(dataclasses.replace(each, label=label.replace("/", "-")))
    return tuple(made)


def _watch(question: Any, chosen: argparse.Namespace) -> Any:
    """Progress for every training, unless the answer is to be JSON."""
    from sterling.report.progress import Progress

    def watch(contender: Any, seeds: Sequence[int]) -> list[Any]:
        if chosen.json:
            return []
        world = importing.short(question.environment)
        title = f"{contender.label} on {world}, seeds {seeds[0]} to {seeds[-1]}"
        return [Progress(question.steps, list(seeds), title)]

    return watch


def _told(question: Any, made: Any, path: Path) -> str:
    """Standings, decisions, and what they cost."""
    from sterling.report.text import columns
    from sterling.statistics.comparison import opposition
    from sterling.training.until import standings

    found = standings(question, path)
    rows = [[f"  {label}", str(one), str(len(one.per_seed))] for label, one in found.items()]
    trained = sum(len(one.per_seed) for one in found.values())
    most = question.looks * question.per_look * len(found)
    lines = [
        importing.short(question.environment),
        columns(["  ", _mean(question), "seeds"], rows, "lrr"),
        "",
    ]
    lines += [f"{decision} after {decision.interim} of {question.looks} looks"
              for decision in made.decisions]  # fmt: skip
    lines += [opposition(one) for one in made.decisions if one.opposed]
    lines += [
        _promise(question, made),
        f"{trained} seeds trained of {most} at most; everything is in {path}",
    ]
    return "\n".join(lines)


def _mean(question: Any) -> str:
    """The heading of the scores' column."""
    return "mean" if question.metric == "return" else f"mean {question.metric}"


def _promise(question: Any, made: Any) -> str:
    """What the decisions hold, and what means of so few seeds leave open."""
    from sterling.statistics.comparison import as_far_as_seen

    if question.about == "mean":
        return (
            f"Probability of any wrong decision about means at most {question.alpha:g}, for every "
            "distribution within the bounds."
        )
    seen = as_far_as_seen(min(made.runs.values()))
    return (
        f"Probability of any wrong decision about tendency about {question.alpha:g} "
        f"(docs/statistics.md); {seen}."
    )


def refuse(chosen: argparse.Namespace) -> None:
    """Say what is missing where words about training were given to a comparison of runs."""
    from sterling.types import Mistake

    if all(run in ALGORITHMS for run in chosen.runs):
        named = " and ".join(chosen.runs)
        raise Mistake(f"{named} name algorithms, not runs; train them with --until-decided")
    given = [name.replace("_", "-") for name in ABOUT_TRAINING if getattr(chosen, name) is not None]
    if given:
        word = "--no-preset" if given[0] == "preset" else f"--{given[0]}"
        raise Mistake(f"{word} is about training; add --until-decided, or leave it out")
