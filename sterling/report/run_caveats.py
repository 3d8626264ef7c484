"""Facts besides the numbers: how each run was made, and what to be careful of."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from sterling.report.live.live_progress import format_duration
from sterling.report.runs.read_runs import RunResult
from sterling.report.runs.run_groups import RunGroup, unique_environments
from sterling.report.runs.setting_differences import InputFile, differing_settings
from sterling.report.text_tables import distinguishing_endings, join_words, pluralise
from sterling.statistics import headline
from sterling.statistics.scores.score_table import FailedRule

FEW_SEEDS = 5  # with fewer seeds, intervals are wide and tests can hardly decide
UNKNOWN_COMMIT, CHANGED_MARK = (
    "-",
    "+",
)  # for an unknown commit; after a commit with uncommitted changes
SAME_BUDGET_SHARE = 0.1  # budgets that differ by less than this share count as the same


@dataclasses.dataclass(frozen=True)
class TextTable:
    """A table of texts."""

    header: list[str]
    rows: list[list[str]]
    title: str = ""
    sides: str = ""  # per column: r for right-aligned, k for never wrapped, a space for text


def runs_table(groups: Sequence[RunGroup]) -> TextTable:
    """Return a table with one row per run: seeds, steps, time, commit, hardware, folder."""
    header = ["", "environment", "seeds", "failed", "steps", "time", "speed"]
    header += ["commit", "hardware", "versions", "from"]
    rows = [_run_row(group, one) for group in groups for one in group.results]
    return TextTable(header, rows, sides="kkrkrrrk")


def settings_tables(groups: Sequence[RunGroup]) -> list[TextTable]:
    """Return a table per algorithm with several runs: the differing settings, a column per run."""
    by_algorithm: dict[str, list[RunResult]] = {}
    for group in groups:
        for one in group.results:
            by_algorithm.setdefault(one.algorithm, []).append(one)
    tables = []
    for algorithm, members in by_algorithm.items():
        known = [one for one in members if one.config]
        table = differing_settings(known) if len(known) > 1 else {}
        if table:
            rows = [[name, *[_value_text(value) for value in row]] for name, row in table.items()]
            tables.append(TextTable(["setting", *_run_names(known)], rows, algorithm))
    return tables


def collect_cautions(
    groups: Sequence[RunGroup],
    notes: Sequence[str],
    failed: FailedRule = None,
    said: Collection[str] = (),
) -> list[str]:
    """Return the caveats to print (few seeds, failed runs, differing settings).

    ``notes`` come first. ``failed``: the score that a failed seed counts as; None: not decided.
    ``said``: environments for which another text already says what so few seeds cannot exclude.
    """
    cautions = list(notes)
    for group in groups:
        cautions += _group_cautions(group, failed)
    cautions += _unseen_cautions([one for one in groups if one.environment not in said])
    for world in unique_environments(groups):
        cautions += _environment_cautions([one for one in groups if one.environment == world])
    return cautions + _overall_cautions([one for group in groups for one in group.results])


def _group_cautions(group: RunGroup, failed: FailedRule) -> list[str]:
    n = int(np.isfinite(group.scores).sum())
    name = f"{group.label} on {group.environment}" if group.environment else group.label
    cautions = []
    if group.failed:
        seeds = [seed for one in group.results for seed in one.failed]
        rule = _failed_rule_text(failed)
        cautions.append(
            f"{name}: seed{'s' if len(seeds) > 1 else ''} {join_words(seeds)} failed, {rule}."
        )
    if n == 1:
        cautions.append(f"{name} rests on one seed: no interval, and no comparison can be decided.")
    elif 0 < n < FEW_SEEDS:
        cautions.append(
            f"{name} rests on {n} seeds; with fewer than {FEW_SEEDS}, intervals are wide."
        )
    unended = sum(sum(one.result.get("unended", ())) for one in group.results)
    if unended:
        cautions.append(f"{name}: {pluralise(unended, 'evaluation episode')} did not end.")
    cut_short = [w for one in group.results for w in one.result.get("world_failures", [])]
    if cut_short:
        cautions.append(
            f"{name}: {pluralise(len(cut_short), 'episode')} cut short by a failing environment."
        )
    return cautions


def _unseen_cautions(groups: Sequence[RunGroup]) -> list[str]:
    """Return what so many seeds cannot exclude, each sentence once, with the runs it is about if it
    is not about all; none for runs whose interval says it."""
    found: dict[str, list[str]] = {}
    for group in groups:
        if np.isfinite(group.scores).sum() > 1:
            scores = [float(x) for x in group.scores]
            made = headline(scores, failed="exclude", within=group.within)
            found.setdefault(made.caution, []).append(f"{group.label} on {group.environment}")
    found.pop("", None)
    of_all = len(next(iter(found.values()), [])) == len(groups) > 1
    return [
        f"{said}." if of_all else f"{join_words(names)}: {said}." for said, names in found.items()
    ]


def _failed_rule_text(failed: FailedRule) -> str:
    if failed is None:
        return "and --failed does not say what that counts as: there is no single mean"
    if failed == "exclude":
        return "left out of the numbers"
    return "counted as " + ("the worst possible score" if failed == "worst" else f"{failed:g}")


def _environment_cautions(groups: Sequence[RunGroup]) -> list[str]:
    """Return the caveats on groups of one environment: budgets that differ."""
    known = [group for group in groups if group.steps]
    ends = [group.steps[-1] for group in known]
    kinds = {(group.unit, tuple(group.before)) for group in known}
    if len(kinds) > 1 or (known and min(ends) < (1 - SAME_BUDGET_SHARE) * max(ends)):
        each = join_words([f"{group.label} {group.budgets}" for group in known])
        return [f"{groups[0].environment}: budgets differ ({each}); scores differ in cost."]
    return []


def _overall_cautions(results: Sequence[RunResult]) -> list[str]:
    cautions = [*_held_out_cautions(results), *_code_cautions(results)]
    machines = _distinct_values(results, lambda one: _hardware_text(one.config) or None)
    if len(machines) > 1:
        cautions.append(f"The runs were made on different hardware ({join_words(machines)}).")
    return cautions


def _held_out_cautions(results: Sequence[RunResult]) -> list[str]:
    """Return the caveat on runs that hold out different shares of what they are asked."""
    spoken = [one.config["speech"] for one in results if one.config.get("speech")]
    shares = sorted({each.get("held_out", 0.0) for each in spoken})
    if len(shares) < 2:
        return []
    each = join_words([f"{share:g}" for share in shares])
    return [f"Different shares were held out ({each}); scores are of different questions or rows."]


def _code_cautions(results: Sequence[RunResult]) -> list[str]:
    """Return the caveats on code: several commits, or uncommitted changes."""
    states = [_commit_text(one.config) for one in results]
    known = list(dict.fromkeys(state for state in states if state != UNKNOWN_COMMIT))
    commits = list(dict.fromkeys(state.removesuffix(CHANGED_MARK) for state in known))
    cautions = []
    if len(commits) > 1:
        cautions.append(
            f"The runs were made by {len(commits)} commits of the code ({join_words(known)})."
        )
    if known != commits:
        same = f", all at commit {commits[0]}" if len(commits) == 1 else ""
        cautions.append("Some runs were made by code with changes that were not committed "
                    f"(marked {CHANGED_MARK}){same}.")  # fmt: skip
    return cautions


def _distinct_values(results: Sequence[RunResult], what: Any) -> list[Any]:
    found = [what(one) for one in results]
    return list(dict.fromkeys(value for value in found if value is not None))


def _run_row(group: RunGroup, one: RunResult) -> list[str]:
    wall = one.result.get("wall_seconds")
    versions = one.config.get("versions", {})
    shown = [f"{name} {versions[name]}" for name in ("sterling", "jax") if versions.get(name)]
    return [
        group.label,
        group.environment,
        str(len(one.seeds)),
        join_words(one.failed) if one.failed else "-",
        _budget_text(one),
        format_duration(wall) if wall is not None else "not finished" if one.config else "-",
        _speed_text(one.result),
        _commit_text(one.config),
        _hardware_text(one.config) or "-",
        ", ".join(shown) or "-",
        one.place,
    ]


def _speed_text(result: dict[str, Any]) -> str:
    """Return steps, or updates, per second; of slow runs with two digits: "0.055 updates/s"."""
    for unit in ("steps", "updates"):
        if speed := result.get(f"{unit}_per_second"):
            return f"{speed:,.0f} {unit}/s" if speed >= 100 else f"{speed:.2g} {unit}/s"
    return "-"


def _budget_text(one: RunResult) -> str:
    if one.updates is not None:
        return f"{pluralise(one.updates, 'update')}"
    return f"{one.steps:,.0f}" if one.steps is not None else "?"


def _commit_text(config: dict[str, Any]) -> str:
    git = config.get("git") or {}
    if not git.get("commit"):
        return UNKNOWN_COMMIT
    return f"{str(git['commit'])[:7]}{CHANGED_MARK if git.get('dirty') else ''}"


def _hardware_text(config: dict[str, Any]) -> str:
    place = config.get("hardware", {})
    if not place:
        return ""
    memory = f"{place['memory'] / 2**30:.0f} GiB" if place.get("memory") else ""
    cores = pluralise(place["cores"], "core") if place.get("cores") else ""
    devices = [name for name in place.get("devices", []) if name != "cpu"]
    parts = [place.get("cpu", ""), cores, memory, *dict.fromkeys(devices)]
    return ", ".join(part for part in parts if part)


def _run_names(results: Sequence[RunResult]) -> list[str]:
    """Return the shortest name for each run that distinguishes them."""
    worlds, places = (
        [one.environment for one in results],
        distinguishing_endings([one.place for one in results]),
    )
    return [
        world if worlds.count(world) == 1 else place
        for world, place in zip(worlds, places, strict=True)
    ]


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, InputFile) and value.mark != value.name:
        return f"{value} ({value.mark[:12]})"  # two files may share a name
    return f"{value:,}" if isinstance(value, int) else f"{value}"
