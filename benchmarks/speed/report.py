"""Measurements into ratios, targets and tables.

A ratio is formed within each repetition, whose contenders ran one after another, and summarised
by its median, lowest and highest. Of a peer's variants the one with the best median counts.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Target:
    """``ours`` has to be at least ``factor`` times better than the best of ``theirs``."""

    text: str
    ours: str
    theirs: tuple[str, ...]
    factor: float
    measure: str  # "seconds": less is better; "steps_per_second": more is better


@dataclasses.dataclass(frozen=True)
class Limit:
    """``case`` has to take no more than ``seconds``."""

    text: str
    case: str
    seconds: float


CARTPOLE = ("cartpole/sb3", "cartpole/sb3_one_thread")
SB3_PPO = ("ppo/sb3_dummy", "ppo/sb3_subprocess", "ppo/sb3_dummy_one_thread")
SBX_PPO = ("ppo/sbx_dummy", "ppo/sbx_subprocess")
SB3_SAC = ("sac/sb3", "sac/sb3_one_thread")
TARGETS = (
    Target("CartPole, cold cache, against SB3", "cartpole/sterling_cold",
           CARTPOLE, 4.0, "seconds"),
    Target("CartPole, warm cache, against SB3", "cartpole/sterling_warm",
           CARTPOLE, 8.0, "seconds"),
    *(Target(f"CartPole, ten seeds ({strategy}), {cache} cache, against one of SB3's",
             f"cartpole/sterling_ten_{strategy}_{cache}", CARTPOLE, 1.0, "seconds")
      for strategy in ("map", "vmap", "processes") for cache in ("cold", "warm")),
    Target("PPO HalfCheetah, against SB3", "ppo/sterling", SB3_PPO, 4.0, "steps_per_second"),
    Target("PPO HalfCheetah, against SBX", "ppo/sterling", SBX_PPO, 3.0, "steps_per_second"),
    Target("PPO HalfCheetah, share of bare EnvPool", "ppo/sterling",
           ("ppo/envpool",), 0.7, "steps_per_second"),
    Target("SAC HalfCheetah, against SB3", "sac/sterling", SB3_SAC, 4.0, "steps_per_second"),
    Target("SAC HalfCheetah, against SBX", "sac/sterling", ("sac/sbx",), 1.3, "steps_per_second"),
)  # fmt: skip
OFFLINE_TARGETS = tuple(
    Target(f"{name} from a log, against d3rlpy", f"offline/{algorithm}_sterling",
           (f"offline/{algorithm}_d3rlpy", f"offline/{algorithm}_d3rlpy_one_thread"), 3.0,
           "steps_per_second")
    for name, algorithm in (("IQL", "iql"), ("TD3+BC", "td3bc"))
)  # fmt: skip
LIMITS = (
    Limit("import sterling", "startup/import", 1.5),
    Limit("sterling --help", "startup/help", 1.5),
    Limit("loading a log of 1,000,000 rows", "offline/loading", 2.0),
)


def compare(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target whose cases were measured: the ratio, its range, and whether it is reached."""
    found = results["measurements"]
    rows = []
    for target in (*TARGETS, *OFFLINE_TARGETS):
        if target.ours in found and any(name in found for name in target.theirs):
            rows.append(_ratio(target, found))
    for limit in LIMITS:
        if limit.case in found:
            name = "load_seconds" if "load_seconds" in found[limit.case][0] else "seconds"
            values = column(found[limit.case], name)
            row = _row(limit.text, values, limit.seconds, "at most")
            rows.append(row | {"unit": "s", "reached": row["median"] <= limit.seconds})
    return rows


def _ratio(target: Target, found: dict[str, Any]) -> dict[str, Any]:
    less = target.measure == "seconds"
    sign = -1.0 if less else 1.0
    best = max(
        (name for name in target.theirs if name in found),
        key=lambda name: sign * statistics.median(column(found[name], target.measure)),
    )
    pairs = zip(
        column(found[target.ours], target.measure),
        column(found[best], target.measure),
        strict=True,
    )
    ratios = [theirs / ours if less else ours / theirs for ours, theirs in pairs]
    row = _row(target.text, ratios, target.factor, "at least")
    return row | {"unit": "x", "reached": row["median"] >= target.factor, "against": best}


def _row(text: str, values: Sequence[float], target: float, kind: str) -> dict[str, Any]:
    return {
        "text": text, "median": statistics.median(values), "low": min(values),
        "high": max(values), "target": target, "kind": kind,
    }  # fmt: skip


def column(repetitions: Sequence[dict[str, Any]], name: str) -> list[float]:
    """One number per repetition."""
    return [float(each[name]) for each in repetitions]


def shares(results: dict[str, Any]) -> dict[str, float]:
    """Share of the machine's matrix-product rate (the better of JAX and torch) that learners of
    one update per step, or from a log, reach; acting, simulating and sampling count as nothing.
    """
    found = results["measurements"]
    names = [name for name in found if name.split("/")[1] in ("matrix_jax", "matrix_torch")]
    if not names:
        return {}
    peak = max(statistics.median(column(found[name], "flops_per_second")) for name in names)
    work = dict.fromkeys(("sac/sterling", "sac/sbx", *SB3_SAC), results["sac_update_flops"])
    for algorithm, flops in results.get("offline_update_flops", {}).items():
        work |= {name: flops for name in found if name.startswith(f"offline/{algorithm}_")}
    return {
        name: statistics.median(column(found[name], "steps_per_second")) * flops / peak
        for name, flops in work.items()
        if name in found
    }


def programs(results: dict[str, Any], top: int = 3) -> list[list[str]]:
    """The dearest programs of each Sterling case, as the median over repetitions."""
    rows = []
    for case, found in results["measurements"].items():
        if "compile" not in found[0]:
            continue
        totals = {name: statistics.median(_stages(found, name)) for name in found[0]["compile"]}
        dear = sorted(totals, key=lambda name: -totals[name])[:top]
        parts = ", ".join(f"`{name}` {totals[name]:.2f}" for name in dear)
        rows.append([case, f"{sum(totals.values()):.2f}", parts])
    return rows


def _stages(found: Sequence[dict[str, Any]], program: str) -> list[float]:
    return [sum(each["compile"].get(program, {}).values()) for each in found]


def _measured(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for case, found in results["measurements"].items():
        cells = [case, _spread(column(found, "seconds"), ".2f")]
        rates = column(found, "steps_per_second") if "steps_per_second" in found[0] else []
        flops = column(found, "flops_per_second") if "flops_per_second" in found[0] else []
        cells.append(_spread(rates, ",.0f") if rates else "")
        cells.append(_spread([rate / 1e9 for rate in flops], ",.0f") if flops else "")
        returns = [each["return"] for each in found if each.get("return") is not None]
        cells.append(f"{statistics.median(returns):,.0f}" if returns else "")
        rows.append(cells)
    return rows


def _spread(values: Sequence[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def _verdicts(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for row in results["comparisons"]:
        unit = row["unit"]
        measured = f"{row['median']:.2f} {unit} ({row['low']:.2f} to {row['high']:.2f})"
        wanted = f"{row['kind']} {row['target']:g} {unit}"
        rows.append([row["text"], measured, wanted, reached(row)])
    return rows


def reached(row: dict[str, Any]) -> str:
    """Whether a target is reached, by the median and by every repetition."""
    more = row["kind"] == "at least"
    worst, best = (row["low"], row["high"]) if more else (row["high"], row["low"])
    every, some = (
        each >= row["target"] if more else each <= row["target"] for each in (worst, best)
    )
    if row["reached"]:
        return "yes" if every else "by the median, not by every repetition"
    return "**no** by the median, by some repetitions" if some else "**no**"


def markdown(results: dict[str, Any], origin: Sequence[str] = ()) -> str:
    """The page that is committed beside the JSON; ``origin`` says where the numbers come from."""
    lines = [
        "# Speed, side by side",
        "",
        *origin,
        f"{results['repetitions']} repetitions, contenders in turn"
        + ("; **quick run: too short to be quoted**" if results["quick"] else "")
        + ". Numbers are medians (lowest to highest). How and what: benchmarks/README.md.",
        "",
        _quiet(results),
        "",
        *grid(["target", "measured", "wanted", "reached"], _verdicts(results)),
        "",
        "## Measurements",
        "",
        *grid(["case", "process, s", "steady steps/s", "GFLOP/s", "return"], _measured(results)),
        "",
    ]
    reached = shares(results)
    if reached:
        parts = ", ".join(
            f"{name.partition('/')[2]} {100 * x:.0f} %" for name, x in reached.items()
        )
        flops = {"SAC": results["sac_update_flops"], **results.get("offline_update_flops", {})}
        work = ", ".join(f"{each / 1e6:,.0f} MFLOP per {name}" for name, each in flops.items())
        lines += [
            f"{work} update; share of the machine's matrix-product rate reached: {parts}.",
            "",
        ]
    compiled = programs(results)
    if compiled:
        heads = ["case", "all programs, s", "dearest (trace + lower + compile or fetch, s)"]
        lines += ["## Compile times", "", *grid(heads, compiled), ""]
    lines += ["## Versions", ""]
    for side, versions in results["versions"].items():
        lines.append(f"* {side}: " + ", ".join(f"{k} {v}" for k, v in versions.items()))
    return "\n".join(lines) + "\n"


def _quiet(results: dict[str, Any]) -> str:
    """Whether the machine had anything else to do."""
    others = [each["others"] for found in results["measurements"].values() for each in found]
    return (
        f"Cores busy with something else meanwhile: {statistics.median(others):.2f} in the median, "
        f"{max(others):.2f} at most."
    )


def terminal(results: dict[str, Any]) -> str:
    """The verdicts as aligned plain text."""
    rows = [["target", "measured", "wanted", "reached"], *_verdicts(results)]
    rows = [[cell.replace("*", "") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    table = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(row) + " |" for row in table]
