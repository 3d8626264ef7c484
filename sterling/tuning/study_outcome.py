"""The report of a study: the incumbent on seeds that nothing was tuned on, and the cost.

The tuning score of the best of many trials is too good: it was chosen for being high (selection, or
maximisation, bias; Patterson 2024, JMLR 25). So the incumbent and the defaults are trained on fresh
seeds, the same for both, and only those numbers carry intervals.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling import algorithms
from sterling.lookup import user_imports
from sterling.schedule_words import describe
from sterling.statistics import Headline, headline
from sterling.training.config.run_options import LanguageSettings, LogSettings
from sterling.training.config.settings import Settings
from sterling.training.fields.config_fields import make_config
from sterling.training.saving import run_folder
from sterling.tuning.jobs.parallel_trials import StudyPlan
from sterling.tuning.search_space import Fields, Space
from sterling.tuning.searchers.searchers import Incumbent
from sterling.tuning.study_settings import POPULATIONS
from sterling.tuning.tuning_study import HistoryLine, Study

StudyReport = dict[str, Any]


def make_report(
    arguments: dict[str, Any],
    study: Study,
    space: Space,
    best: Incumbent,
    tested: Sequence[HistoryLine],
) -> StudyReport:
    """Return the content of report.json."""
    settings = study.plan.settings
    shares = len(tested) // 2
    sign = study.plan.better  # from here on scores have the metric's own sign
    defaults, tuned = (
        _in_metric_direction(sign, [score for line in lines for score in line["scores"]])
        for lines in (tested[:shares], tested[shares:])
    )
    given = {each.name: getattr(settings.config, each.name) for each in space}
    made: StudyReport = {
        **{name: arguments[name] for name in ("algorithm", "environment", "search", "key")},
        **{name: arguments[name] for name in ("objective", "seeds", "test_seeds")},
        "metric": study.plan.metric,
        **{"unit": settings.unit, settings.unit: settings.budget},
        "incumbent": {
            "trial": best.trial,
            "fields": best.fields,
            "plan": [list(step) for step in best.plan],
            "tuning": {
                "score": sign * best.score,
                "per_seed": _in_metric_direction(sign, best.scores),
            },
            "test": _headline_json(tuned, study.plan),
        },
        "defaults": {"fields": given, "test": _headline_json(defaults, study.plan)},
        "difference": _difference_json(tuned, defaults, study.plan),
        "space": [str(each) for each in space],
        "budget": _budget_spent(study),
        "command": training_command(settings, best.fields),
    }
    found = made["incumbent"]["test"]["estimate"]
    alike = found is not None and _is_comparable(arguments, best, settings.budget)
    made["optimism"] = best.score - sign * found if alike else None
    return made


def _in_metric_direction(sign: int, scores: Sequence[float | None]) -> list[float | None]:
    """Convert scores, of which larger is better, to the metric's own sign."""
    return [None if score is None else sign * score for score in scores]


def _is_comparable(arguments: dict[str, Any], best: Incumbent, budget: int) -> bool:
    """Whether tuning and test score measure the same: the mean over seeds after the full budget.

    A population's area is that of its last generation alone.
    """
    part = arguments["search"] in POPULATIONS and arguments["objective"] == "area"
    return arguments["objective"] != "bound" and best.plan[-1][1] == budget and not part


def write_report(path: Path, report: StudyReport) -> None:
    """Write report.md, then report.json, whose presence marks the study as complete."""
    (path / "report.md").write_text(report_markdown(report), encoding="utf-8")
    run_folder.write_json(path / "report.json", report)


def training_command(settings: Settings, fields: Fields) -> str:
    """Return the command that trains with some fields."""
    words = ["sterling", "train", settings.algorithm, settings.to_json()["environment"]]
    words += ["--" + settings.unit, str(settings.budget)]
    for part in (settings.data, settings.speech):
        words += _changed_options(part) if part is not None else []
    own = {**settings.config.__dict__, **fields}
    name = settings.algorithm  # a name may set fields, as gspo sets level
    usual = make_config(algorithms.find(name), algorithms.preset_fields(name), name).__dict__
    words += ["--no-preset", "--envs", str(settings.envs)]
    scheduled = {name: describe(each) for name, each in settings.schedules.items()}
    for name, value in {**own, **scheduled}.items():
        if value == usual[name]:
            continue
        word = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(word if value else word.replace("--", "--no-", 1))
        else:
            words += [word, _value_text(value)]
    words += [f"--env={key}={value}" for key, value in settings.env_options.items()]
    for name in ("augment", "sources", "plasticity", "hindsight", "critic_obs", "obs", "encoder"):
        value = getattr(settings, name)
        words += [f"--{name.replace('_', '-')}={value}"] if value else []
    return shlex.join(words)


def _value_text(value: Any) -> str:
    """Return a field's value as it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) + "," * (len(value) == 1)
    return repr(value) if isinstance(value, float) else str(value).lower()


def _changed_options(part: LogSettings | LanguageSettings) -> list[str]:
    """Return the options of a dataset or a language model that differ from the defaults."""
    own = {"data" if name == "path" else name: value for name, value in part.__dict__.items()}
    usual = {each.name: each.default for each in dataclasses.fields(part)}
    changed = {name: value for name, value in own.items() if value != usual.get(name)}
    changed.pop("hash", None)
    return [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in changed.items()
    ]


def estimate_text(plain: dict[str, Any]) -> str:
    """Return an estimate of report.json as text, with each seed's score where there are few."""
    headline = Headline.from_json(plain)
    if headline.shown is None:
        return "no score"
    return f"{headline} (seeds {headline.seeds})" if headline.seeds else str(headline)


def report_markdown(report: StudyReport) -> str:
    """Return the report as Markdown."""
    best, budget, seeds = report["incumbent"], report["budget"], report["test_seeds"]
    unit, tuning = report["unit"], best["tuning"]
    title = " on ".join(
        user_imports.short_name(report[name]) for name in ("algorithm", "environment")
    )
    tested = estimate_text(best["test"])
    lines = [
        f"# {title}, tuned by {report['search']}",
        "",
        f"Scores are the objective `{report['objective']}`{_metric_text(report)} of training for "
        f"{report[unit]:,} {unit}.",
        f"Intervals: 95 %, over {len(seeds)} seeds on which nothing was tuned.",
        "",
        "| | tuning seeds, chosen for being the best | fresh seeds |",
        "|---|---|---|",
        f"| incumbent (trial {best['trial']}) | {tuning['score']:.4g} | {tested} |",
        f"| defaults | | {estimate_text(report['defaults']['test'])} |",
        f"| incumbent minus defaults, seed by seed | | {estimate_text(report['difference'])} |",
        "",
        "| field | range | defaults | incumbent |",
        "|---|---|---|---|",
    ]
    usual = report["defaults"]["fields"]
    for text, (name, value) in zip(report["space"], best["fields"].items(), strict=True):
        kept = text.partition("=")[2].replace("|", " or ")
        lines.append(f"| {name} | {kept} | {value_text(usual[name])} | {value_text(value)} |")
    lines += [
        "",
        f"Budget: {budget['trials']} trials, {budget[unit]:,} {unit} over "
        f"{len(report['seeds'])} tuning seeds each, {budget['seconds']:,.0f} s of processes, "
        f"{budget['wall_seconds']:,.0f} s on the clock with the test "
        f"({budget['test_' + unit]:,} {unit}).",
        "",
        f"    {report['command']}",
        "",
    ]
    return "\n".join(lines + _plan_lines(best["plan"], unit))


def _plan_lines(plan: list[Any], unit: str) -> list[str]:
    """Return the lines on an incumbent whose settings changed during training; else none."""
    if len(plan) == 1:
        return []
    stages = [
        f"* {unit} {start:,} to {stop:,}: " + json.dumps(_round_fields(fields))
        for start, stop, fields in plan
    ]
    return ["The incumbent's settings changed during training:", "", *stages, ""]


def _metric_text(report: StudyReport) -> str:
    """Return " of METRIC" where the metric is not the return."""
    metric = report.get("metric", "return")
    return "" if metric == "return" else f" of {metric}"


def value_text(value: Any) -> str:
    """Format a field's value for a table."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _round_fields(fields: Fields) -> Fields:
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in fields.items()}


def _headline_json(scores: Sequence[float | None], plan: StudyPlan) -> dict[str, Any]:
    """Return per-seed scores and their headline as JSON values.

    A seed without a score never finished an episode: it failed, and counts as the study's
    ``failed`` says (``scores/headline.py``).
    """
    how: dict[str, Any] = {"within": plan.within, "better": plan.better}
    made = headline(scores, failed=plan.settings.failed, **how)
    return {**made.to_json(), "without_score": made.lost}


def _difference_json(
    tuned: Sequence[float | None], defaults: Sequence[float | None], plan: StudyPlan
) -> dict[str, Any]:
    """Return the seed-by-seed difference as JSON values; a pair needs both scores.

    It is taken seed by seed because both sides had the same randomness.
    """
    both = zip(tuned, defaults, strict=True)
    low, high = plan.within or (None, None)
    ends = None if low is None or high is None else (low - high, high - low)
    apart = [None if a is None or b is None else a - b for a, b in both]
    made = headline(apart, within=ends, better=plan.better)
    return {**made.to_json(), "without_score": made.lost}


def _budget_spent(study: Study) -> dict[str, Any]:
    """Return the cost; ``seconds`` are summed over processes, ``wall_seconds`` are the clock's."""
    lines, tests = study.trials.lines.values(), study.tests.lines.values()
    unit = study.plan.settings.unit
    return {
        "trials": len({line["trial"] for line in lines}),
        "jobs": len(lines),
        unit: sum(line["cost"][unit] for line in lines),
        "seconds": round(sum(line["cost"]["seconds"] for line in lines), 1),
        f"test_{unit}": sum(line["cost"][unit] for line in tests),
        "test_seconds": round(sum(line["cost"]["seconds"] for line in tests), 1),
        "wall_seconds": round(max(line["at"] for line in [*lines, *tests]), 1),
        "search_wall_seconds": round(max(line["at"] for line in lines), 1),
    }
