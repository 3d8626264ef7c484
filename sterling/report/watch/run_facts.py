"""What the page of one run says about it: settings, warnings, its worst and best episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterling.lookup.user_imports import short_name
from sterling.report.episodes.episode_text import episodes_table
from sterling.report.episodes.episodes_file import KEPT_EACH, choose_episodes, read_episodes
from sterling.report.run_caveats import collect_cautions
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results
from sterling.system.mistake import Mistake


def flat_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Return the settings in one level: ``lr`` for the algorithm's, ``env_options.name``."""
    left_out = ("versions", "hardware", "git", "time", "code", "config")
    made = {name: x for name, x in content.items() if name not in left_out and x is not None}
    nested = {name: x for name, x in made.items() if isinstance(x, dict)}
    flat = {name: x for name, x in made.items() if name not in nested}
    for room, inside in nested.items():
        flat |= {f"{room}.{name}": x for name, x in inside.items()}
    own = content.get("config")
    return {**(own if isinstance(own, dict) else {}), **flat}


def panel_names(summaries: list[dict[str, Any]]) -> list[str]:
    """Return each run's panel of the chart: its environment, with the unit of its x axis where runs
    of one environment count differently. Runs of different environments never share a panel."""
    units: dict[str, set[str]] = {}
    for one in summaries:
        units.setdefault(one["place"], set()).add(one["unit"])
    alike: dict[str, list[str]] = {}
    for place in sorted(units):
        alike.setdefault(short_name(place), []).append(place)
    names = {
        place: f"{name} ({number})" if len(places) > 1 else name
        for name, places in alike.items()
        for number, place in enumerate(places, 1)
    }
    return [
        names[one["place"]] + (f", by {one['unit']}" if len(units[one["place"]]) > 1 else "")
        for one in summaries
    ]


def run_warnings(folder: Path) -> list[str]:
    """Return the caveats of a run, as reports state them."""
    try:
        results, notes = read_results([folder])
        groups, more = group_results(results)
        return collect_cautions(groups, [*notes, *more])
    except Mistake as error:
        return [str(error)]
    except KeyError as error:
        return [f"config.json or result.json has no entry {error}: no warnings can be given"]
    except (TypeError, ValueError) as error:
        return [
            f"config.json, result.json or the log is damaged ({error}): no warnings can be given"
        ]


def episodes_text(folder: Path) -> str:
    """Return tables of the worst and the best episodes of the last evaluation; "" if none."""
    try:
        made = read_episodes(folder)
    except Mistake as error:
        return str(error)
    if made is None:
        return ""
    tables = []
    for title, best in (("worst", False), ("best", True)):
        ids = choose_episodes(made, KEPT_EACH, best=best)
        tables.append(f"{title} {len(ids)}\n{episodes_table(made, ids)}")
    return "\n\n".join(tables)
