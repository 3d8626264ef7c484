"""What a study came to: the incumbent on seeds that nothing was tuned on, and what it cost.

The tuning score of the best of many trials is too good: it was chosen for being high (selection,
or maximisation, bias; Patterson 2024, JMLR 25). So the incumbent and the defaults are trained on
fresh seeds, the same for both, and only those numbers carry intervals.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling import algorithms, importing
from sterling.statistics import Headline, headline
from sterling.training import folder
from sterling.training.choices import Logbook, Speech
from sterling.training.fields import make_config
from sterling.training.settings import Settings
from sterling.tuning.asked import POPULATIONS
from sterling.tuning.lanes import Plan
from sterling.tuning.search import Incumbent
from sterling.tuning.space import Fields, Space
from sterling.tuning.study import Line, Study

Report = dict[str, Any]


def report(
    asked: dict[str, Any], study: Study, space: Space, best: Incumbent, tested: Sequence[Line]
) -> Report:
    """Everything that report.json says."""
    settings = study.plan.settings
    shares = len(tested) // 2
    sign = study.plan.better  # scores are in the metric's own direction from here on
    defaults, tuned = (
        _in_units(sign, [score for line in lines for score in line["scores"]])
        for lines in (tested[:shares], tested[shares:])
    )
    given = {each.name: getattr(settings.config, each.name) for each in space}
    made: Report = {
        **{name: asked[name] for name in ("algorithm", "environment", "search", "key")},
        **{name: asked[name] for name in ("objective", "seeds", "test_seeds")},
        "metric": study.plan.metric,
        **{"unit": settings.unit, settings.unit: settings.budget},
        "incumbent": {
            "trial": best.trial,
            "fields": best.fields,
            "plan": [list(step) for step in best.plan],
            "tuning": {"score": sign * best.score, "per_seed": _in_units(sign, best.scores)},
            "test": _estimated(tuned, study.plan),
        },
        "defaults": {"fields": given, "test": _estimated(defaults, study.plan)},
        "difference": _difference(tuned, defaults, study.plan),
        "space": [str(each) for each in space],
        "budget": _budget(study),
        "command": command(settings, best.fields),
    }
    found = made["incumbent"]["test"]["estimate"]
    alike = found is not None and _comparable(asked, best, settings.budget)
    made["optimism"] = best.score - sign * found if alike else None
    return made


def _in_units(sign: int, scores: Sequence[float | None]) -> list[float | None]:
    """Scores, of which larger is better, as the metric's own numbers."""
    return [None if score is None else sign * score for score in scores]


def _comparable(asked: dict[str, Any], best: Incumbent, budget: int) -> bool:
    """Whether the tuning score is what the test measures: the mean over seeds, after the whole
    budget; a population's area is that of its last generation alone."""
    part = asked["search"] in POPULATIONS and asked["objective"] == "area"
    return asked["objective"] != "bound" and best.plan[-1][1] == budget and not part


def write(path: Path, made: Report) -> None:
    """report.md, then report.json: from then on the study is complete."""
    (path / "report.md").write_text(markdown(made), encoding="utf-8")
    folder.write_json(path / "report.json", made)


def command(settings: Settings, fields: Fields) -> str:
    """The command that trains with some fields."""
    words = ["sterling", "train", settings.algorithm, settings.to_json()["environment"]]
    words += ["--" + settings.unit, str(settings.budget)]
    for part in (settings.data, settings.speech):
        words += _said(part) if part is not None else []
    own = {**settings.config.__dict__, **fields}
    name = settings.algorithm  # which may stand for fields of its own, as gspo does for level
    usual = make_config(algorithms.find(name), algorithms.named(name), name).__dict__
    words += ["--no-preset", "--envs", str(settings.envs)]
    for name, value in own.items():
        if value == usual[name]:
            continue
        word = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(word if value else word.replace("--", "--no-", 1))
        else:
            words += [word, repr(value) if isinstance(value, float) else str(value).lower()]
    words += [f"--env={key}={value}" for key, value in settings.env_options.items()]
    words += [f"--augment={settings.augment}"] if settings.augment else []
    words += [f"--sources={settings.sources}"] if settings.sources else []
    words += [f"--hindsight={settings.hindsight}"] if settings.hindsight else []
    return shlex.join(words)


def _said(part: Logbook | Speech) -> list[str]:
    """What differs from the defaults in the part about a log or a language model, as options."""
    own = {"data" if name == "path" else name: value for name, value in part.__dict__.items()}
    usual = {each.name: each.default for each in dataclasses.fields(part)}
    changed = {name: value for name, value in own.items() if value != usual.get(name)}
    changed.pop("hash", None)
    return [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in changed.items()
    ]


def shown(plain: dict[str, Any]) -> str:
    """An estimate of report.json as text, with each seed's score where there are few."""
    made = Headline.from_json(plain)
    if made.shown is None:
        return "no score"
    return f"{made} (seeds {made.seeds})" if made.seeds else str(made)


def markdown(made: Report) -> str:
    """The report for people."""
    best, budget, seeds = made["incumbent"], made["budget"], made["test_seeds"]
    unit, tuning = made["unit"], best["tuning"]
    title = " on ".join(importing.short(made[name]) for name in ("algorithm", "environment"))
    lines = [
        f"# {title}, tuned by {made['search']}",
        "",
        f"Scores are the objective `{made['objective']}`{_of(made)} of training for "
        f"{made[unit]:,} {unit}.",
        f"Intervals: 95 %, over {len(seeds)} seeds on which nothing was tuned.",
        "",
        "| | tuning seeds, chosen for being the best | fresh seeds |",
        "|---|---|---|",
        f"| incumbent (trial {best['trial']}) | {tuning['score']:.4g} | {shown(best['test'])} |",
        f"| defaults | | {shown(made['defaults']['test'])} |",
        f"| incumbent less defaults, seed by seed | | {shown(made['difference'])} |",
        "",
        "| field | range | defaults | incumbent |",
        "|---|---|---|---|",
    ]
    usual = made["defaults"]["fields"]
    for text, (name, value) in zip(made["space"], best["fields"].items(), strict=True):
        kept = text.partition("=")[2].replace("|", " or ")
        lines.append(f"| {name} | {kept} | {short(usual[name])} | {short(value)} |")
    lines += [
        "",
        f"Budget: {budget['trials']} trials, {budget[unit]:,} {unit} over "
        f"{len(made['seeds'])} tuning seeds each, {budget['seconds']:,.0f} s of processes, "
        f"{budget['wall_seconds']:,.0f} s on the clock with the test "
        f"({budget['test_' + unit]:,} {unit}).",
        "",
        f"    {made['command']}",
        "",
    ]
    if len(best["plan"]) > 1:
        lines += ["The incumbent's settings changed on the way:", ""]
        for start, stop, fields in best["plan"]:
            lines.append(f"* {unit} {start:,} to {stop:,}: " + json.dumps(_rounded(fields)))
        lines.append("")
    return "\n".join(lines)


def _of(made: Report) -> str:
    """What is scored, where it is not the return."""
    metric = made.get("metric", "return")
    return "" if metric == "return" else f" of {metric}"


def short(value: Any) -> str:
    """A field's value for a table."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _rounded(fields: Fields) -> Fields:
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in fields.items()}


def _estimated(scores: Sequence[float | None], plan: Plan) -> dict[str, Any]:
    """Per-seed scores and what may be said of them; a seed without a score never finished an
    episode: it failed, and counts as the study was asked (``statistics/headline.py``)."""
    how: dict[str, Any] = {"within": plan.within, "better": plan.better}
    made = headline(scores, failed=plan.settings.failed, **how)
    return {**made.to_json(), "without_score": made.lost}


def _difference(
    tuned: Sequence[float | None], defaults: Sequence[float | None], plan: Plan
) -> dict[str, Any]:
    """Seed by seed, since both met the same randomness; a pair needs both."""
    both = zip(tuned, defaults, strict=True)
    low, high = plan.within or (None, None)
    ends = None if low is None or high is None else (low - high, high - low)
    apart = [None if a is None or b is None else a - b for a, b in both]
    made = headline(apart, within=ends, better=plan.better)
    return {**made.to_json(), "without_score": made.lost}


def _budget(study: Study) -> dict[str, Any]:
    """What was spent; seconds are those of processes, ``wall_seconds`` those of the clock."""
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
