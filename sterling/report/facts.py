"""What a reader must know beside the numbers: how each run was made, and what to be careful of."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from sterling.report.groups import Group, environments
from sterling.report.progress import duration
from sterling.report.runs import Result
from sterling.report.settings import Source, differing
from sterling.report.text import count, endings, listed
from sterling.statistics import headline
from sterling.statistics.scores import Failed

FEW = 5  # seeds; below this, intervals are wide and tests can hardly decide
UNKNOWN, CHANGED = "-", "+"  # of a run's commit; after it: the code had changes beside it
CLOSE = 0.1  # budgets that differ by less than this share count as the same


@dataclasses.dataclass(frozen=True)
class Table:
    """A table in words."""

    header: list[str]
    rows: list[list[str]]
    title: str = ""
    sides: str = ""  # per column: r for flush right, k for kept on one line, a space for text


def runs(groups: Sequence[Group]) -> Table:
    """One row per run: seeds, steps, time, commit, hardware, folder."""
    header = ["", "environment", "seeds", "failed", "steps", "time", "steps/s"]
    header += ["commit", "hardware", "versions", "from"]
    rows = [_run(group, one) for group in groups for one in group.results]
    return Table(header, rows, sides="kkrkrrrkkk")


def settings(groups: Sequence[Group]) -> list[Table]:
    """Per algorithm with several runs: the settings in which they differ, a column per run."""
    by_algorithm: dict[str, list[Result]] = {}
    for group in groups:
        for one in group.results:
            by_algorithm.setdefault(one.algorithm, []).append(one)
    tables = []
    for algorithm, members in by_algorithm.items():
        known = [one for one in members if one.config]
        table = differing(known) if len(known) > 1 else {}
        if table:
            rows = [[name, *[_value(value) for value in row]] for name, row in table.items()]
            tables.append(Table(["setting", *_columns(known)], rows, algorithm))
    return tables


def cautions(
    groups: Sequence[Group],
    notes: Sequence[str],
    failed: Failed = None,
    said: Collection[str] = (),
) -> list[str]:
    """Everything that weakens what the page says, in words; ``notes`` from reading come first.

    ``failed``: what a failed seed counts as; None: nothing is decided. ``said``: environments of
    which it is said elsewhere what so few seeds cannot exclude.
    """
    told = list(notes)
    for group in groups:
        told += _of_group(group, failed, group.environment in said)
    for world in environments(groups):
        told += _of_world([one for one in groups if one.environment == world])
    return told + _of_all([one for group in groups for one in group.results])


def _of_group(group: Group, failed: Failed, said: bool) -> list[str]:
    name, n = f"{group.label} on {group.environment}", int(np.isfinite(group.scores).sum())
    told = []
    if group.failed:
        seeds = [seed for one in group.results for seed in one.failed]
        rule = _rule(failed)
        told.append(f"{name}: seed{'s'[: len(seeds) > 1]} {listed(seeds)} failed, {rule}.")
    if n == 1:
        told.append(f"{name} rests on one seed: no interval, and no comparison can be decided.")
    elif 0 < n < FEW:
        told.append(f"{name} rests on {n} seeds; with fewer than {FEW}, intervals are wide.")
    unseen = "" if said else _unseen(group, n)
    told += [f"{name}: {unseen}."] if unseen else []
    unended = sum(sum(one.result.get("unended", ())) for one in group.results)
    if unended:
        told.append(f"{name}: {count(unended, 'evaluation episode')} did not come to an end.")
    lost = [w for one in group.results for w in one.result.get("world_failures", [])]
    if lost:
        told.append(f"{name}: {count(len(lost), 'episode')} cut short by a failing environment.")
    return told


def _unseen(group: Group, n: int) -> str:
    """What so many seeds cannot exclude, where the interval does not allow for it."""
    if n < 2:
        return ""
    made = headline([float(x) for x in group.scores], failed="exclude", within=group.within)
    return made.caution


def _rule(failed: Failed) -> str:
    if failed is None:
        return "and nothing says what that counts as (--failed): there is no single mean"
    if failed == "exclude":
        return "left out of the numbers"
    return "counted as " + ("the worst possible score" if failed == "worst" else f"{failed:g}")


def _of_world(groups: Sequence[Group]) -> list[str]:
    """Groups on one environment that cannot be read side by side without a thought."""
    known = [group for group in groups if group.steps]
    ends = [group.steps[-1] for group in known]
    kinds = {(group.unit, tuple(group.before)) for group in known}
    if len(kinds) > 1 or (known and min(ends) < (1 - CLOSE) * max(ends)):
        each = listed([f"{group.label} {group.budgets}" for group in known])
        return [f"{groups[0].environment}: budgets differ ({each}); scores are not at equal cost."]
    return []


def _of_all(results: Sequence[Result]) -> list[str]:
    told = _of_code(results)
    machines = _several(results, lambda one: _hardware(one.config) or None)
    if len(machines) > 1:
        told.append(f"The runs were made on different hardware ({listed(machines)}).")
    return told


def _of_code(results: Sequence[Result]) -> list[str]:
    """Whether one code made the runs, as far as their commits say."""
    states = [_commit(one.config) for one in results]
    known = list(dict.fromkeys(state for state in states if state != UNKNOWN))
    commits = list(dict.fromkeys(state.removesuffix(CHANGED) for state in known))
    told = []
    if len(commits) > 1:
        told.append(f"The runs were made by {len(commits)} commits of the code ({listed(known)}).")
    if known != commits:
        same = f", all at commit {commits[0]}" if len(commits) == 1 else ""
        told.append("Some runs were made by code with changes that were not committed "
                    f"(marked {CHANGED}){same}.")  # fmt: skip
    return told


def _several(results: Sequence[Result], what: Any) -> list[Any]:
    found = [what(one) for one in results]
    return list(dict.fromkeys(value for value in found if value is not None))


def _run(group: Group, one: Result) -> list[str]:
    wall = one.result.get("wall_seconds")
    speed = one.result.get("steps_per_second")
    versions = one.config.get("versions", {})
    shown = [f"{name} {versions[name]}" for name in ("sterling", "jax") if versions.get(name)]
    return [
        group.label,
        group.environment,
        str(len(one.seeds)),
        listed(one.failed) if one.failed else "-",
        _budget(one),
        duration(wall) if wall is not None else "not finished" if one.config else "-",
        f"{speed:,.0f}" if speed else "-",
        _commit(one.config),
        _hardware(one.config) or "-",
        ", ".join(shown) or "-",
        one.place,
    ]


def _budget(one: Result) -> str:
    if one.updates is not None:
        return f"{count(one.updates, 'update')}"
    return f"{one.steps:,.0f}" if one.steps is not None else "?"


def _commit(config: dict[str, Any]) -> str:
    git = config.get("git") or {}
    if not git.get("commit"):
        return UNKNOWN
    return f"{str(git['commit'])[:7]}{CHANGED if git.get('dirty') else ''}"


def _hardware(config: dict[str, Any]) -> str:
    place = config.get("hardware", {})
    if not place:
        return ""
    memory = f"{place['memory'] / 2**30:.0f} GiB" if place.get("memory") else ""
    cores = count(place["cores"], "core") if place.get("cores") else ""
    devices = [name for name in place.get("devices", []) if name != "cpu"]
    parts = [place.get("cpu", ""), cores, memory, *dict.fromkeys(devices)]
    return ", ".join(part for part in parts if part)


def _columns(results: Sequence[Result]) -> list[str]:
    """A name for each run, the shortest that tells them apart."""
    worlds, places = [one.environment for one in results], endings([one.place for one in results])
    return [
        world if worlds.count(world) == 1 else place
        for world, place in zip(worlds, places, strict=True)
    ]


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Source) and value.mark != value.name:
        return f"{value} ({value.mark[:12]})"  # two may have one name
    return f"{value:,}" if isinstance(value, int) else f"{value}"
