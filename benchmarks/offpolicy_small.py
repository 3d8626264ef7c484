"""Small logs, and fits that stop too early: what ``offpolicy.py --only small`` measures.

For each world, distance of the policies and size of the log, every log's estimate, its
leave-one-out values, effective sample size and missing ratios are kept in a folder (``--cells``),
so that a run that was stopped goes on. Intervals are made from those: as ``judge`` makes them, and
*earlier*, by the rule that it had before (arms by the sample's own skewness, degrees of freedom by
the effective sample size alone, refused never).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from sterling.data_generation.tabular_logs import make_log
from sterling.envs.native.tabular_mdp import make_tabular
from sterling.evaluation import TabularPolicy, estimate_policy_value
from sterling.evaluation.off_policy import importance_estimates
from sterling.evaluation.off_policy.episode_intervals import jackknife, leave_one_out
from sterling.statistics.intervals import mean_intervals as of_mean

GAMMA, LIMIT, JUDGED = 0.95, 50, 0.4
WORLDS = ("grid-4x4", "random-16x4-0")
SIZES = (30, 100, 300)
BEHAVIOURS = {"near": 0.6, "far": 1.0}  # chance of a random action
TABLE: dict[str, Any] = {"depth": 0, "lr": 0.1, "batch": 128, "tau": 0.05}
NETWORK: dict[str, Any] = {"width": 32, "lr": 3e-3}
FITS = (("table", TABLE, (10, 30, 100, 600)), ("network", NETWORK, (10, 50, 200, 1500)))
FQE_GAMMA, FQE_LIMIT, FQE_EPISODES = 0.9, 30, 100
ABOUT = """
## Small logs

`python benchmarks/offpolicy.py --only small --logs {logs}`, gamma 0.95, cut after
50 steps, {logs} logs (seeds 0 to {last}) in each cell; policies as above. **interval**: share of
the logs for which an interval is stated; **holds**: how many of those hold the truth; **width**:
their median width. **earlier**: the same of the rule before (arms by the sample's own skewness,
degrees of freedom by the effective sample size alone, never refused). Standard error 1.3 % at 95 %.

"""
EARLY = """
## Fitted Q with too few updates

The random world, gamma 0.9, {episodes} episodes cut after {limit} steps, {logs} logs of the near
policy; truth {truth:.3f}, the behaviour's value {behaviour:.3f}. **no interval**: share refused as
not converged; **holds** and **width**: of the others.

"""


def cell(world: str, chance: float, episodes: int, logs: int) -> dict[str, np.ndarray]:
    """Every log's estimate by every method, and what its interval is made from."""
    mdp = make_tabular(world)
    best = mdp.optimal(GAMMA)
    policy, acting = TabularPolicy.from_table(mdp.greedy(best, JUDGED)), mdp.greedy(best, chance)
    found: dict[str, list[Any]] = {}
    for seed in range(logs):
        data = make_log(mdp, acting, episodes, LIMIT, seed)
        both = [
            importance_estimates.make_tables(policy, data, seed=seed, relative=how)
            for how in (False, True)
        ]
        for method in importance_estimates.METHODS:
            made = both[method in importance_estimates.WEIGHTED]
            sums = importance_estimates.method_sums(
                policy, data, made, method, gamma=GAMMA, seed=seed, fields={}
            )
            value, without = leave_one_out(*(np.asarray(x, np.float64) for x in sums))
            size, missed = importance_estimates.effective_episodes(
                made, GAMMA, method not in importance_estimates.TRAJECTORY_WISE
            )
            for name, x in (("value", value), ("without", without), ("size", size)):
                found.setdefault(f"{method}/{name}", []).append(x)
            found.setdefault(f"{method}/missed", []).append(missed)
    return {name: np.array(values) for name, values in found.items()}


def small(logs: int, folder: Path) -> list[dict[str, Any]]:
    """One row for every world, distance, size and method."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for world in WORLDS:
        mdp = make_tabular(world)
        judged = mdp.greedy(mdp.optimal(GAMMA), JUDGED)
        for name, chance in BEHAVIOURS.items():
            for episodes in SIZES:
                path = folder / f"{world}-{name}-{episodes}-{logs}.npz"
                if not path.exists():
                    np.savez(path, **cell(world, chance, episodes, logs))
                kept = np.load(path)
                about = {"world": world, "log": name, "episodes": episodes, "logs": logs}
                for method in importance_estimates.METHODS:
                    plain = method in importance_estimates.WITHOUT_MODEL
                    truth = mdp.expected_return(judged, GAMMA, LIMIT if plain else None)
                    rows.append({**about, "method": method, **held(kept, method, truth)})
    return rows


def held(kept: Any, method: str, truth: float) -> dict[str, Any]:
    """How often both rules hold the truth."""
    value, without, size, missed = (
        kept[f"{method}/{name}"] for name in ("value", "without", "size", "missed")
    )
    now, before = [], []
    for each in zip(value, without, size, missed, strict=True):
        made = jackknife(float(each[0]), each[1], float(each[2]), 0.95)
        refused = importance_estimates.refusal_reason(float(each[2]), float(each[3]))
        now.append((math.nan, math.nan) if refused else (made.low, made.high))
        before.append(earlier(*each[:3]))
    return {
        "truth": truth,
        "bias": float(value.mean() - truth),
        "rmse": float(np.sqrt(np.mean((value - truth) ** 2))),
        **share(np.array(now), truth, ""),
        **share(np.array(before), truth, "earlier_"),
    }


def share(ends: np.ndarray, truth: float, word: str) -> dict[str, Any]:
    """Of intervals ``(log, end)``, NaN where there is none."""
    stated = ends[~np.isnan(ends[:, 0])]
    holds = (stated[:, 0] <= truth) & (truth <= stated[:, 1])
    return {
        f"{word}interval": len(stated) / len(ends),
        f"{word}holds": float(holds.mean()) if len(stated) else None,
        f"{word}width": float(np.median(np.diff(stated))) if len(stated) else None,
    }


def earlier(value: float, without: np.ndarray, effective: float) -> tuple[float, float]:
    """The interval of the rule before."""
    n, worth = len(without), max(float(effective), 2.0)
    away = -(n - 1) * (without - without.mean())
    second = float((away**2).mean())
    skewness = float((away**3).mean()) / second**1.5 if second > 0.0 else 0.0
    most = max(worth - 2.0, 0.5) / math.sqrt(worth - 1.0)
    low, high = of_mean.skew_t_arms(worth, np.asarray(max(min(skewness / most, 1.0), -1.0)))
    half = float(stdtrit(worth - 1.0, 0.975)) * math.sqrt(second / (n - 1))
    return value - float(low) * half, value + float(high) * half


def early(logs: int) -> dict[str, Any]:
    """Fitted Q with few and with enough updates: how often it says that it has not converged."""
    mdp = make_tabular(WORLDS[1])
    best = mdp.optimal(FQE_GAMMA)
    judged, acting = mdp.greedy(best, JUDGED), mdp.greedy(best, 0.6)
    truth, rows = mdp.expected_return(judged, FQE_GAMMA), []
    made = [make_log(mdp, acting, FQE_EPISODES, FQE_LIMIT, seed) for seed in range(logs)]
    for name, fields, counts in FITS:
        for updates in counts:
            given = {"gamma": FQE_GAMMA, "updates": updates, **fields}
            found = [
                estimate_policy_value(
                    TabularPolicy.from_table(judged), data, "fqe", seed=seed, **given
                )
                for seed, data in enumerate(made)
            ]
            ends = np.array([(one.low, one.high) for one in found], float)
            value = float(np.mean([one.value for one in found]))
            about = {"fit": name, "updates": updates, "value": value, "logs": logs}
            rows.append({**about, **share(ends, truth, "")})
            print(rows[-1], flush=True)
    return {
        "rows": rows,
        "truth": truth,
        "behaviour": mdp.expected_return(acting, FQE_GAMMA),
        "logs": logs,
    }


def number(x: float | None) -> str:
    """Three digits, or nothing."""
    return "" if x is None else f"{x:.3f}"


def page(small: dict[str, Any]) -> str:
    """Return the tables of small logs and of fits that stop too early, as Markdown."""
    logs, early = small["rows"][0]["logs"], small["early"]
    names = ("interval", "holds", "width", "earlier_holds", "earlier_width")
    about = ("world", "log", "episodes", "method")
    text = ABOUT.format(logs=logs, last=logs - 1)
    rows = [
        (*(str(row[name]) for name in about), *(number(row[name]) for name in names))
        for row in small["rows"]
    ]
    text += table((*about, *(name.replace("_", " ") for name in names)), rows)
    given = {"episodes": FQE_EPISODES, "limit": FQE_LIMIT}
    known = {name: early[name] for name in ("logs", "truth", "behaviour")}
    text += EARLY.format(**given, **known)
    rows = [
        (
            *(row["fit"], str(row["updates"]), number(row["value"])),
            *(number(1 - row["interval"]), number(row["holds"]), number(row["width"])),
        )
        for row in early["rows"]
    ]
    heads = ("networks", "updates", "mean value", "no interval", "holds", "width")
    return text + table(heads, rows)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
