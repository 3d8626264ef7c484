"""Sterling against Stable-Baselines3, SBX and the machine's own limits, side by side.

    python benchmarks/speed/run.py [--page] [--out benchmarks/results/speed.json]

Every contender is measured in a fresh process, in turn (A, B, C, A, B, C, ...), so that a machine
whose speed drifts slows all of them alike. Writes the JSON and, beside it, a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import report
from bounds import iql_update_flops, sac_update_flops, td3bc_update_flops
from cases import Case, all_cases, select
from measure import ROOT, Bench, peers_python

sys.path.append(str(ROOT))

from benchmarks import evidence

GROUPS = ("cartpole", "ppo", "sac", "offline", "programs", "startup")
SEEDS = "0; 0 to 9 where ten are trained"
CHEETAH = {"obs": 17, "action": 6, "width": 256, "batch": 256}


def main() -> None:
    """Measure, write, print."""
    options = _options()
    if options.page:
        results = json.loads(options.out.read_text())
        options.out.with_suffix(".md").write_text(_page(options.out, results))
        return
    begun = evidence.begin()
    cases = select(all_cases(options.quick), options.only)
    repetitions = options.repetitions or (1 if options.quick else 3)
    results: dict[str, Any] = {
        "versions": {},
        "quick": options.quick,
        "repetitions": repetitions,
        "sac_update_flops": sac_update_flops(**CHEETAH),
        "offline_update_flops": {
            "iql": iql_update_flops(**CHEETAH),
            "td3bc": td3bc_update_flops(**CHEETAH),
        },
        "cases": {f"{case.group}/{case.name}": case.request for case in cases},
        "measurements": {},
    }
    python = peers_python(options.peers_python)
    with tempfile.TemporaryDirectory(prefix="sterling-speed-") as scratch:
        bench = Bench(python, Path(scratch))
        for _, group in groupby(cases, key=lambda case: case.group):
            measured = _measure(bench, list(group), repetitions)
            results["versions"] |= _versions(measured)
            results["measurements"] |= measured
            _write(options.out, results, begun)  # after every group: a late failure loses little
    print(report.terminal(json.loads(options.out.read_text())))  # groups of before included


def _measure(bench: Bench, contenders: list[Case], repetitions: int) -> dict[str, Any]:
    """All contenders of a group in turn, ``repetitions`` times."""
    measurements: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for repetition in range(repetitions):
        for case in contenders:
            found = bench.measure(case)
            measurements[f"{case.group}/{case.name}"].append(found)
            _tell(case, repetition, found)
    return dict(measurements)


def _write(out: Path, results: dict[str, Any], begun: dict[str, Any]) -> None:
    """The JSON, and the Markdown page beside it. Groups that were not measured now stay as they
    were, each with where its numbers come from."""
    old = json.loads(out.read_text()) if out.exists() else {"provenance": []}
    now, whole = _groups(results), dict(results)
    kept = [group for group in _groups(old) if group not in now]
    blocks = [
        {**block, "of": group}
        for group in kept
        for block in old["provenance"]
        if block.get("of", group) == group
    ]
    for part in ("cases", "measurements"):
        before = {name: x for name, x in old.get(part, {}).items() if name.split("/")[0] in kept}
        whole[part] = before | results[part]
    whole["comparisons"] = report.compare(whole)
    whole["provenance"] = blocks + [{"of": each, **begun, "seeds": SEEDS} for each in now]
    out.write_text(json.dumps(whole, indent=1) + "\n")
    out.with_suffix(".md").write_text(_page(out, whole))


def _groups(results: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name.split("/")[0] for name in results.get("measurements", {})))


def _page(out: Path, results: dict[str, Any]) -> str:
    """The page, with where its numbers come from."""
    return report.markdown(results, evidence.lines(out))


def _tell(case: Case, repetition: int, found: dict[str, Any]) -> None:
    line = f"{case.group}/{case.name} #{repetition + 1}: {found['seconds']:.1f} s"
    if "steps_per_second" in found:
        line += f", {found['steps_per_second']:,.0f} steps/s"
    if "flops_per_second" in found:
        line += f", {found['flops_per_second'] / 1e9:,.0f} GFLOP/s"
    print(line, flush=True)


def _versions(measurements: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What each side ran on."""
    versions: dict[str, dict[str, str]] = {}
    for found in measurements.values():
        side = "sterling" if "sterling" in found[0].get("versions", {}) else "peers"
        if "versions" in found[0]:
            versions.setdefault(side, found[0]["versions"])
        for each in found:
            each.pop("versions", None)
    return versions


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/speed.json")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--quick", action="store_true", help="short runs, once: does it work?")
    parser.add_argument("--repetitions", type=int, help="default 3; with --quick 1")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=[], help="these groups")
    parser.add_argument(
        "--peers-python",
        help="a Python with the peers; default: .venv-bench, made from '.[bench]'",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
