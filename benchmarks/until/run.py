"""`sterling compare --until-decided`, shown: two algorithms that differ, two copies of one, a kill.

    python benchmarks/until/run.py [--out benchmarks/results/until.md]

Each is the command itself in processes of its own. The third is the first again, killed (SIGKILL)
in the middle of its second training, given once more, and compared with the undisturbed answer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIFFER = "compare sac ppo --environment Pendulum-v1 --steps 8_000 --max-seeds 20 --until-decided"
SAME = "compare ppo ppo --environment CartPole-v1 --steps 10_240 --max-seeds 20 --until-decided"


def main() -> None:
    """Run all three, write the page, and fail where a kill changed the answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "until.md")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        differ = told(DIFFER, work / "differ")
        same = told(SAME, work / "same")
        killed_after = killed(DIFFER, work / "killed")
        again = told(DIFFER, work / "killed")
        equal = answer(work / "killed") == answer(work / "differ")
    out.parent.mkdir(exist_ok=True)
    out.write_text(page(differ, same, again, killed_after, equal))
    print(out.read_text())
    if not equal:
        raise SystemExit("killed and resumed differs from undisturbed")


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


def page(differ, same, again, killed_after: float, equal: bool) -> str:
    """What was given and what came out; the first three are pairs of text and seconds."""
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    verdict = "the same" if equal else "NOT THE SAME"
    return f"""# Training until it is decided

Made by `python benchmarks/until/run.py`, {now}, commit {commit}, {os.cpu_count()} cores.

Two algorithms that differ ({differ[1]:.0f} s):

    $ sterling {DIFFER}
{indented(differ[0])}

Two copies of one ({same[1]:.0f} s):

    $ sterling {SAME}
{indented(same[0])}

The first again, killed with SIGKILL after {killed_after:.0f} s, in its second training, and given
once more ({again[1]:.0f} s): every score and the decision are {verdict}.
"""


def indented(text: str) -> str:
    """As a block of Markdown."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    main()
