"""`sterling compare --until-decided`, shown: algorithms that differ, two copies of one, a kill.

    python benchmarks/until/run.py [--only differ same killed] [--page]

Each is the command itself in processes of its own. ``killed`` is
``differ`` again, killed (SIGKILL) in the middle of its second training, given once more, and
compared with the undisturbed answer. Writes benchmarks/results/until.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "until"
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

COMMANDS = {
    "differ": "compare sac ppo --environment Pendulum-v1 --steps 8_000 --max-seeds 20 "
    "--until-decided",
    "same": "compare ppo ppo --environment CartPole-v1 --steps 10_240 --max-seeds 20 "
    "--until-decided",
}
TITLES = {
    "differ": "Two algorithms that differ",
    "same": "Two copies of one",
}
KILLED = "killed"


def main() -> None:
    """Run what was asked for, write the page, and fail where a kill changed the answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = [*COMMANDS, KILLED]
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = parser.parse_args()
    path = OUT.with_suffix(".json")
    if not chosen.page:
        begun = evidence.begin()
        for name in chosen.only:
            found = interrupted() if name == KILLED else undisturbed(COMMANDS[name])
            evidence.write_part(path, name, found, begun, "0 onwards, as many as it takes")
    found = json.loads(path.read_text())["parts"]
    OUT.with_suffix(".md").write_text("\n".join(page(found)).rstrip() + "\n")
    print(OUT.with_suffix(".md").read_text())
    if KILLED in found and not found[KILLED]["equal"]:
        raise SystemExit("killed and resumed differs from undisturbed")


def undisturbed(words: str) -> dict[str, Any]:
    """What the command prints, its scores, and the seconds it took."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "compared"
        text, seconds = told(words, folder)
        return {
            "command": words,
            "text": text,
            "seconds": seconds,
            "answer": answer(folder),
        }


def interrupted() -> dict[str, Any]:
    """The same command undisturbed and killed: whether the answers are equal."""
    words = COMMANDS["differ"]
    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch) / "whole", Path(scratch) / "broken"
        told(words, whole)
        after = killed(words, broken)
        seconds = told(words, broken)[1]
        return {
            "killed_after": after,
            "seconds": seconds,
            "equal": answer(broken) == answer(whole),
        }


def told(words: str, folder: Path) -> tuple[str, float]:
    """What the command says in the end, and the seconds it took."""
    start = time.monotonic()
    run = subprocess.run(command(words, folder), capture_output=True, text=True, check=True)
    lines = run.stdout.replace(str(folder), "FOLDER").splitlines()
    first = max(i for i, line in enumerate(lines) if line.endswith("-v1"))
    return "\n".join(lines[first:]).rstrip(), time.monotonic() - start


def killed(words: str, folder: Path) -> float:
    """Start the command and kill it once its second training is under way."""
    start = time.monotonic()
    process = subprocess.Popen(
        command(words, folder), stdout=subprocess.DEVNULL, start_new_session=True
    )
    while not (folder / "ppo" / "00" / "config.json").exists():
        if process.poll() is not None:
            raise SystemExit("the command ended before it could be killed")
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return time.monotonic() - start


def command(words: str, folder: Path) -> list[str]:
    """The program to start."""
    return [sys.executable, "-m", "sterling", *words.split(), "--out", str(folder)]


def answer(folder: Path) -> list[object]:
    """The decision, and every score it rests on."""
    results = [json.loads(file.read_text()) for file in sorted(folder.glob("*/*/result.json"))]
    scores = [result["final"]["return"]["per_seed"] for result in results]
    return [json.loads((folder / "decision.json").read_text()), scores]


def page(found: dict[str, Any]) -> list[str]:
    """What was given and what came out."""
    lines = ["# Training until it is decided", ""]
    lines += evidence.lines(OUT.with_suffix(".json"))
    for name, title in TITLES.items():
        if name in found:
            each = found[name]
            lines += [f"{title}:", ""]
            lines += [f"    $ sterling {each['command']}"]
            lines += [f"    {line}".rstrip() for line in each["text"].splitlines()] + [""]
    if KILLED in found:
        each = found[KILLED]
        same = "the same" if each["equal"] else "NOT THE SAME"
        lines += [
            "Two algorithms that differ again, killed (SIGKILL) in the second training, and given "
            f"once more: every score and the decision are {same}.",
        ]
    return lines


if __name__ == "__main__":
    main()
