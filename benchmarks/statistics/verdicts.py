"""How often ``compare`` is wrong between equal tendencies, in many shapes, and what it sees.

    python benchmarks/statistics/verdicts.py [--trials 2000] [--only GROUP ...] [--page]

Every cell is simulated by the rules of ``sterling.statistics.compare`` (see ``simulated.py``) at
alpha = 0.05, with 1,100 exchanges for its 10,000. Writes benchmarks/results/verdicts.json after
each cell and in the end the page beside it. At the same commit it goes on where it was stopped; a
group that is incomplete and of another commit, or of none that is known, is simulated anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alone  # noqa: F401 - first of all
import numpy as np
import verdicts_page
from simulated import bounded, exchanged, held, looks, one_look
from tendencies import EQUAL, FAMILIES, MEANS, Law, collapsing, shift, steady

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

SIZES = (5, 6, 7, 8, 10, 20)
SHIFTS = (0.5, 1.0, 1.5, 2.0, 3.0)
PLANS = {"5 looks x 5": (5, 5), "3 looks x 5": (3, 5), "3 looks x 10": (3, 10)}  # looks, runs
Cell = dict[str, Any]


def main() -> None:
    """Simulate what is missing, then write the page."""
    options = _options()
    if not options.page:
        simulate(options)
    options.out.with_suffix(".md").write_text(verdicts_page.markdown(options.out))


def simulate(options: argparse.Namespace) -> None:
    """Simulate the cells that are asked for and missing; write the file after each."""
    begun = evidence.begin()
    groups: dict[str, Callable[[int], Any]] = {
        "errors": errors, "families": families, "power": powers, "means": means,
        "intervals": intervals, "exchanged means": exchanged_means,
    }  # fmt: skip
    for group, cells in groups.items():
        if options.only and group not in options.only:
            continue
        asked = {n: m for n, m in cells(options.trials) if options.like in n}
        known, commit = _known(options.out, group)
        if asked.keys() <= known.keys():
            continue
        made = known if commit == begun["commit"] else {}
        for name in (name for name in asked if name not in made):
            made[name] = asked[name]()
            evidence.write_part(options.out, group, made, begun, "trial numbers")
            print(group, name, made[name], flush=True)


def _known(out: Path, group: str) -> tuple[dict[str, Cell], str | None]:
    """Return the cells of a group that are there, and the commit that made them if it is known."""
    content = json.loads(out.read_text()) if out.exists() else {"parts": {}, "provenance": []}
    commits = [block["commit"] for block in content["provenance"] if block["of"] == group]
    return content["parts"].get(group, {}), commits[0] if commits else None


def _plans() -> dict[str, tuple[int, int | None]]:
    one_look = {f"{n}": (1, n) for n in SIZES}
    return one_look | {"5 looks x 5": PLANS["5 looks x 5"]}


def errors(trials: int) -> Any:
    """Two algorithms of equal tendency."""
    for shape, (first, second) in EQUAL.items():
        move = shift(first, second)
        for plan, (count, n) in _plans().items():
            laws = (first, _moved(second, move))
            yield f"{shape} | {plan}", lambda a=laws, k=count, n=n: _cell(a, k, n, trials)


def families(trials: int) -> Any:
    """Three and four algorithms of equal tendency: any wrong verdict."""
    for shape, laws in FAMILIES.items():
        for n in (5, 6, 7, 10, 20):
            yield f"{shape} | {n}", lambda laws=laws, n=n: one_look(laws, n, trials)
        many = trials // 4
        yield f"{shape} | 5 looks x 5", lambda laws=laws, m=many: looks(laws, 5, 5, m, 1_000)


def powers(trials: int) -> Any:
    """Normal scores so many standard deviations apart, and a steady against a collapsing one."""
    plans = {f"{n}": (1, n) for n in (5, 6, 10, 20)} | PLANS
    cases: dict[str, tuple[Law, Law]] = {f"{by:g} sd": (_normal(by), _normal(0.0)) for by in SHIFTS}
    cases["steady, 70 % above it and 30 % collapsed"] = (collapsing, steady)
    for case, laws in cases.items():
        for plan, (count, n) in plans.items():
            many = trials if count == 1 else trials // 4
            yield f"{case} | {plan}", lambda a=laws, k=count, n=n, m=many: _cell(a, k, n, m)


def means(trials: int) -> Any:
    """about="mean" within (0, 2000): equal means, and means that differ."""
    plans = {f"{n}": (1, n) for n in (5, 10, 20)} | {"5 looks x 5": (5, 5)}
    cases = {shape: tuple(map(_cut, laws)) for shape, laws in MEANS.items()}
    for by in (600.0, 1000.0, 1400.0):
        cases[f"normal, {by:g} apart"] = (
            _cut(_normal(300.0, 50.0)),
            _cut(_normal(300.0 + by, 50.0)),
        )
    for case, laws in cases.items():
        for plan, (count, n) in plans.items():
            yield f"{case} | {plan}", lambda laws=laws, k=count, n=n: bounded(laws, k, n, trials)


def intervals(trials: int) -> Any:
    """How often the interval of P(first > second) holds it, in one look."""
    from scipy.special import ndtr

    for by in (0.0, 1.0, 2.0):
        laws = (_normal(by), _normal(0.0))
        true = float(ndtr(by / np.sqrt(2.0)))
        for n in (5, 10, 20):
            yield f"normal, {by:g} sd | {n}", lambda a=laws, p=true, n=n: held(a, p, n, trials)
    for share in (0.5, 0.7, 0.8, 0.9):
        laws = (_collapsing(share), steady)
        for n in (5, 10, 20):
            name = f"steady, {share:.0%} above it | {n}"
            yield name, lambda a=laws, p=share, n=n: held(a, p, n, trials)


def exchanged_means(trials: int) -> Any:
    """The former test, exchanged means: how often it finds a difference where means are equal."""
    for shape, laws in MEANS.items():
        for n in (5, 10, 20):
            yield f"{shape} | {n}", lambda laws=laws, n=n: exchanged(laws, n, 5 * trials)


def _cell(laws: tuple[Law, ...], count: int, n: int, trials: int) -> Cell:
    return one_look(laws, n, trials) if count == 1 else looks(laws, count, n, trials)


def _normal(mean: float, spread: float = 1.0) -> Law:
    return lambda rng, n: rng.normal(mean, spread, n)


def _moved(law: Law, by: float) -> Law:
    return lambda rng, n: law(rng, n) + by


def _cut(law: Law) -> Law:
    return lambda rng, n: np.clip(law(rng, n), 0.0, 2000.0)


def _collapsing(share: float) -> Law:
    return lambda rng, n: np.where(rng.random(n) < share, 1000.0, 333.0) + rng.normal(0, 30.0, n)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/verdicts.json")
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--only", nargs="+", default=[], help="these groups")
    parser.add_argument("--like", default="", help="only cells whose name holds this")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
