"""The speed benchmark's results as JSON and as a Markdown page."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import evidence

WANTED = {
    "tiny x8": 5.0,
    "tiny x64": 3.0,
    "tiny x256": 3.0,
    "small x8": 3.0,
    "small x64": 3.0,
    "small x256": 3.0,
    "grpo x8": 4.0,
    "grpo x32": 4.0,
    "grpo x128": 4.0,
}
PARTS = ("sampling", "hearing")


def write(out: Path, results: dict[str, Any]) -> None:
    """The JSON, and the page beside it."""
    results["comparisons"] = compared(results)
    begun = results["provenance"][0]
    evidence.write(out, results, begun, begun["seeds"])
    out.with_suffix(".md").write_text(page(results, evidence.lines(out)))


def compared(results: dict[str, Any]) -> dict[str, Any]:
    """Ratios of what was measured in the same turn: median, lowest, highest."""
    measured = results["measurements"]
    found: dict[str, Any] = {}
    for name, fast in measured.items():
        group, _, side = name.partition("/")
        slow = measured[f"{group}/{'batches' if group == 'slots' else 'peers'}"]
        if not (side == "refill" or side.startswith("sterling")) or side.endswith("first"):
            continue
        each = [_seconds(a) / _seconds(b) for a, b in zip(slow, fast, strict=True)]
        found[group + side.removeprefix("sterling").removeprefix("refill")] = {
            "ratio": [round(f(each), 2) for f in (statistics.median, min, max)],
            "wanted": WANTED.get(group),
        }
    return found


def page(results: dict[str, Any], origin: Sequence[str] = ()) -> str:
    """All of it in words and tables; ``origin`` says where the numbers come from."""
    versions = results["versions"]
    lines = [
        "# Speed of language models, side by side",
        "",
        *origin,
        f"{results['repetitions']} repetitions, contenders in turn, torch on "
        f"{results['threads']} threads. Numbers are medians (lowest to highest).",
        "",
        "| against | Sterling is faster by | wanted |",
        "| --- | --- | --- |",
    ]
    against = {"slots": "batches of 64 that wait for their longest answer", "grpo": "TRL"}
    for group, each in results["comparisons"].items():
        middle, low, high = each["ratio"]
        other = against.get(group.split()[0], "transformers")
        wanted = f"at least {each['wanted']:g} x" if each["wanted"] else ""
        lines.append(f"| {group}: {other} | {middle:.2f} x ({low:.2f} to {high:.2f}) | {wanted} |")
    lines += ["", *_sampling(results), "", *_slots(results), "", *_iterations(results), ""]
    lines += [f"* {side}: {_joined(each)}" for side, each in versions.items()]
    return "\n".join(lines) + "\n"


def _sampling(results: dict[str, Any]) -> list[str]:
    """Tokens per second, and shares of what the machine can do."""
    lines = [
        "Sampling: model and prompts of a call; tokens per second of whole calls, prompts and all;",
        "share of the rate of 1024 x 1024 matrix products measured in the same turn.",
        "",
        "| case | side | tokens/s | share of the matrix rate | of the memory's |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, found in results["measurements"].items():
        group, _, side = name.partition("/")
        case = results["cases"][name]
        if case["request"]["kind"] != "sampling" or side.endswith("first"):
            continue
        rate = statistics.median(each["tokens"] / each["seconds"] for each in found)
        cells = [f"{rate:,.0f}", _matrix(results, name), _memory(results, name)]
        lines.append(f"| {group} | {side} | {' | '.join(cells)} |")
    return lines


def _matrix(results: dict[str, Any], name: str) -> str:
    """Matrix products that a call must make, by the time it took, of the machine's rate."""
    measured, flops = results["measurements"], results["cases"][name]["flops"]
    bound = measured[f"{name.partition('/')[0]}/matrix"]
    shares = [
        flops / each["seconds"] / (most["flops"] / most["seconds"])
        for each, most in zip(measured[name], bound, strict=True)
    ]
    return f"{100 * statistics.median(shares):.0f} %"


def _memory(results: dict[str, Any], name: str) -> str:
    """Bytes that steps of decoding must read, by the time they took, of the memory's rate."""
    measured = results["measurements"]
    bound = measured.get(f"{name.partition('/')[0]}/memory")
    first = measured.get(f"{name} first")
    if not bound or not first:
        return ""
    case = results["cases"][name]
    steps = case["request"]["new"] - 1
    shares = [
        case["step_bytes"] * steps / (a["seconds"] - b["seconds"]) / (c["bytes"] / c["seconds"])
        for a, b, c in zip(measured[name], first, bound, strict=True)
    ]
    return f"{100 * statistics.median(shares):.0f} %"


def _slots(results: dict[str, Any]) -> list[str]:
    if "slots/refill" not in results["measurements"]:
        return []
    found = {way: results["measurements"][f"slots/{way}"] for way in ("refill", "batches")}
    one, ask = found["refill"][0], results["cases"]["slots/refill"]["request"]
    rates = {way: statistics.median(map(_rate, each)) for way, each in found.items()}
    return [
        f"Slots: {ask['rows']} prompts, 64 slots; answers end by chance, at {ask['limit']} tokens "
        f"at the latest: {one['mean']:.1f} in the mean, {one['longest']:.0f} at most. Refilled "
        f"{rates['refill']:,.0f} tokens/s, in batches {rates['batches']:,.0f}."
    ]


def _iterations(results: dict[str, Any]) -> list[str]:
    """Milliseconds of whole iterations of GRPO, and where ours go."""
    cases, measured = results["cases"], results["measurements"]
    names = [name for name in measured if cases[name]["request"]["kind"] == "grpo"]
    if not names:
        return []
    ask = cases[names[0]]["request"]
    lines = [
        f"GRPO: so many answers of at most {ask['limit']} tokens, {ask['group']} to each question, "
        "and one update. Host: scenes, verifiers and tokens.",
        "The matrix rate is that of answers of full length, each read with its question.",
        "",
        "| case | side | an iteration, ms | of the matrix rate | sampling | host | learning |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in names:
        found, (group, side) = measured[name], name.split("/")
        whole = 1e3 * _median(found, "seconds")
        parts = [1e3 * _median(found, part) for part in PARTS if part in found[0]]
        cells = [f"{x:.0f}" for x in (*parts, whole - sum(parts))] if parts else [""] * 3
        cells = [f"{whole:.0f}", _matrix(results, name), *cells]
        lines.append(f"| {group} | {side} | {' | '.join(cells)} |")
    return lines


def _seconds(found: dict[str, Any]) -> float:
    """Of a call; where answers end by chance, per token."""
    return float(found["seconds"] / found.get("tokens", 1.0))


def _rate(found: dict[str, Any]) -> float:
    return float(found["tokens"] / found["seconds"])


def _median(found: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(each[name] for each in found))


def _joined(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
