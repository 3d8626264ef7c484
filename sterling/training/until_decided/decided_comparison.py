"""Compare algorithms that are given as words by training until decided, and say the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling import algorithms
from sterling.algorithms import ALGORITHMS
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import parse_literal
from sterling.report.text_tables import text_table
from sterling.report.verdict_words import relations_text
from sterling.statistics.comparisons.comparison_result import (
    Comparison,
    Decision,
    disagreement_text,
    format_probability,
    unseen_means_text,
)
from sterling.system.mistake import Mistake
from sterling.system.terminal_messages import print_notice, silenced
from sterling.training.config.user_code_words import environment_reference
from sterling.training.until_decided.decision_question import Contender, Question
from sterling.training.until_decided.train_until_decided import standings, until_decided

MAX_SEEDS, SEEDS_PER_LOOK = 30, 5


@dataclasses.dataclass(frozen=True)
class DecidedComparison:
    """Algorithms that were trained until the comparison was decided."""

    question: Question
    decided: Comparison
    path: Path  # the folder of the study, with all runs

    def __repr__(self) -> str:
        return _result_text(self.question, self.decided, self.path)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return self.decided.to_json()


def compare_until_decided(
    runs: Sequence[str],
    scoring: dict[str, Any],
    *,
    environment: Any = None,
    steps: int | None = None,
    max_seeds: int = MAX_SEEDS,
    per_look: int = SEEDS_PER_LOOK,
    out: str | Path | None = None,
    strategy: str | None = None,
    preset: bool = True,
    quiet: bool = True,
) -> DecidedComparison:
    """Train algorithms until the comparison is decided; the same call resumes a stopped study.

    ``runs``: algorithms, as ``[LABEL=]ALGORITHM[:FIELD=VALUE,...]``. ``scoring``: metric, failed,
    about, within, alpha and key. Raise Mistake without an environment or steps.
    """
    given = {"environment": environment, "steps": steps}
    if lacking := [f"--{name}" for name, value in given.items() if value is None]:
        raise Mistake(f"--until-decided needs {' and '.join(lacking)}. Add what is missing.")
    contenders = _number_copies([_parse_contender(text) for text in runs])
    known = {"strategy": strategy, "preset": preset}
    question = Question(
        contenders, environment_reference(environment), int(steps or 0), max_seeds, per_look,
        scoring["alpha"], scoring["failed"], scoring["key"],
        {name: value for name, value in known.items() if value is not None},
        scoring["about"], scoring["within"], scoring["metric"],
    )  # fmt: skip
    where = user_imports.display_name(question.environment)
    name = "-".join(["compare", *(each.label for each in contenders), where])
    path = Path(out) if out is not None else Path("runs") / name.replace("/", "-")
    try:
        with silenced():  # hide how to resume a single run: the study is resumed, not its runs
            made = until_decided(question, path, _progress_factory(question, quiet))
    except SystemExit:
        print_notice("The same command resumes the comparison where it stopped.")
        raise
    return DecidedComparison(question, made, path)


def _parse_contender(text: str) -> Any:
    """Parse [LABEL=]ALGORITHM[:FIELD=VALUE,...]."""
    head, colon, settings = text.rpartition(":")
    listed = head.rpartition("=")[2] in ALGORITHMS
    if not colon or not (listed or "=" in settings):  # my_algorithm.py:Mine names an object
        head, settings = text, ""
    label, equals, algorithm = head.rpartition("=")
    algorithms.find(algorithm)
    shown = text.replace(algorithm, user_imports.short_name(algorithm))
    fields = {}
    for part in settings.split(",") if settings else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise Mistake(f"{text!r}: {part!r} is not of the form KEY=VALUE")
        fields[name.replace("-", "_")] = parse_literal(value)
    return Contender(label if equals else shown, algorithms.reference_to(algorithm), fields)


def _number_copies(contenders: Sequence[Any]) -> tuple[Any, ...]:
    """Number contenders with equal labels, so that they can be compared with each other."""
    seen: dict[str, int] = {}
    made = []
    for each in contenders:
        seen[each.label] = seen.get(each.label, 0) + 1
        again = seen[each.label] > 1
        label = f"{each.label}-{seen[each.label]}" if again else each.label
        made.append(dataclasses.replace(each, label=label.replace("/", "-")))
    return tuple(made)


def _progress_factory(question: Question, quiet: bool) -> Any:
    """Return a function that makes the progress displays of a training run; none if quiet."""
    from sterling.report.live.live_progress import Progress

    def watch(contender: Any, seeds: Sequence[int]) -> list[Any]:
        if quiet:
            return []
        world = user_imports.short_name(question.environment)
        title = f"{contender.label} on {world}, seeds {seeds[0]} to {seeds[-1]}"
        return [Progress(question.steps, list(seeds), title)]

    return watch


def _result_text(question: Any, made: Any, path: Path) -> str:
    """Return the text of the result: standings, decisions, and the number of seeds trained."""
    found = standings(question, path)
    rows = [[f"  {label}", str(one), str(len(one.per_seed))] for label, one in found.items()]
    trained = sum(len(one.per_seed) for one in found.values())
    most = question.max_looks * question.per_look * len(found)
    lines = [
        user_imports.short_name(question.environment),
        text_table(["  ", _score_heading(question), "seeds"], rows, "lrr"),
        "",
    ]
    lines += decision_lines(made.decisions, question.max_looks)
    lines += [disagreement_text(one) for one in made.decisions if one.directions_disagree]
    lines += [
        _guarantee_text(question, made),
        f"{trained} of at most {most} seeds were trained; all results are in {path}",
    ]
    return "\n".join(lines)


def decision_lines(decisions: Sequence[Decision], looks: int) -> list[str]:
    """Return the decision about two algorithms; about more, one sentence, and a table of the pairs
    with the look that decided each."""
    if len(decisions) < 2:
        return [f"{each} after {each.interim} of {looks} looks" for each in decisions]
    won = [(x.first, x.second) for x in decisions if x.verdict == "larger"]
    won += [(x.second, x.first) for x in decisions if x.verdict == "smaller"]
    rest = [(x.first, x.second) for x in decisions if x.verdict in ("equal", "undecided")]
    more, about_means = decisions[0].direction, decisions[0].about == "mean"
    does = f"has a {more} mean" if about_means else f"tends to score {more}"
    shown = "difference of means" if about_means else f"{more} in pairs of runs"
    rows = [[f"{x.first} and {x.second}", _numbers_of(x), x.verdict, str(x.interim)]
            for x in decisions]  # fmt: skip
    header = ["pair", shown, "the first is", f"decided at look, of {looks}"]
    return [f"{relations_text(won, rest, does)}.", "", text_table(header, rows, "lllr"), ""]


def _numbers_of(decision: Decision) -> str:
    if decision.about == "mean":
        return str(decision.means or "")
    return "" if decision.better is None else format_probability(decision.better)


def _score_heading(question: Any) -> str:
    """Return the heading of the scores' column."""
    return "mean" if question.metric == "return" else f"mean {question.metric}"


def _guarantee_text(question: Any, made: Any) -> str:
    """Return a sentence on the error control of the decisions, and on what few seeds leave open."""
    if question.about == "mean":
        return (
            f"The probability of any wrong decision about means is at most {question.alpha:g}, for "
            "every distribution within the bounds."
        )
    seen = unseen_means_text(min(made.runs.values()))
    return (
        f"The probability of any wrong decision about tendency is about {question.alpha:g} "
        f"(docs/statistics.md); {seen}."
    )
