"""Kill runs of every kind at random moments, resume them, and hold that nothing was lost.

    python benchmarks/reliability/kills.py [--kills 10] [--only KIND] [--out FILE] [--page]

Each case is a run that is killed by SIGKILL several times in its life: at the Nth write of a file
(N is drawn), or after a time that is drawn. It is resumed until it ends, and *held* if it then
equals the run that nobody killed: rows, results and the checksum of every tensor of the last
checkpoint. Cases are seeded; finished kinds are kept in FILE and not done again. In the end it
writes the tables of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
sys.path.append(str(HERE.parents[1]))
import page  # noqa: E402
from kinds import KINDS, outcome  # noqa: E402

from benchmarks import evidence  # noqa: E402

Whole = tuple[Any, float]  # what a run that nobody killed came to, and its seconds
LIMIT = 600.0  # seconds that one process may take
OUT = page.RESULTS / "reliability-kills.json"


def start(kind: str, path: Path, log: Path, *count: str) -> subprocess.Popen[bytes]:
    """A process that carries out a run, or goes on with it."""
    words = [sys.executable, str(HERE / "kinds.py"), kind, str(path), str(log), *count]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Exit code and last line on standard error."""
    _, said = process.communicate(timeout=LIMIT)
    return process.returncode, said.decode(errors="replace").strip().rpartition("\n")[2]


def write_log(path: Path) -> Path:
    """A log to learn from offline."""
    from sterling.data_generation.dataset_order import DatasetOrder
    from sterling.data_generation.make_dataset import make_dataset

    if not path.exists():
        make_dataset(DatasetOrder("CartPole-v1", "random", 2000), path)
    return path


def uninterrupted(kind: str, folder: Path, log: Path) -> Whole:
    """What a run that nobody kills comes to, and the seconds that it takes."""
    begun = time.monotonic()
    path = folder / f"{kind} whole"
    code, said = finish(start(kind, path, log))
    assert code == 0, f"{kind}: {said}"
    return outcome(kind, path), time.monotonic() - begun


def kill_once(kind: str, path: Path, log: Path, draw: random.Random, seconds: float) -> bool:
    """Kill a run once on its way, at a write or at a time; whether it was not finished before."""
    if draw.random() < 0.7:
        process = start(kind, path, log, str(int(draw.expovariate(1 / 12.0)) + 1))
        code, said = finish(process)
        assert code in (0, -signal.SIGKILL), f"{kind}: exit code {code}: {said}"
        return code != 0
    process = start(kind, path, log)
    time.sleep(draw.uniform(0.3, 1.0) * seconds)
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return running


def go_on(kind: str, path: Path, log: Path) -> None:
    """Carry a run to its end, from where it is."""
    deadline = time.monotonic() + LIMIT
    while True:
        code, said = finish(start(kind, path, log))
        if code == 0:
            return
        # parts of `processes` save and leave when their parent is killed, which takes a moment
        assert "in use by process" in said, f"{kind}: {said}"
        assert time.monotonic() < deadline, f"{kind}: {said}"
        time.sleep(0.5)


def case(kind: str, whole: Whole, folder: Path, log: Path, seed: int) -> int:
    """Kill a run up to three times and let it end; the number of kills. Raises AssertionError."""
    expected, seconds = whole
    draw = random.Random(f"{kind} {seed}")
    path = folder / f"{kind} {seed}"
    kills = 0
    for _ in range(draw.randint(1, 3)):
        if not kill_once(kind, path, log, draw, seconds):
            break
        kills += 1
    go_on(kind, path, log)
    found = outcome(kind, path)
    assert found == expected, f"{kind}, seed {seed}: another outcome than without kills"
    unfinished = [each for each in path.rglob("*.partial-*") if _is_outermost(each)]
    assert len(unfinished) <= kills, unfinished  # one file or folder a kill
    shutil.rmtree(path)
    return kills


def _is_outermost(path: Path) -> bool:
    """Whether an unfinished file or folder lies in no other that is unfinished."""
    return not any(".partial-" in above.name for above in path.parents)


def campaign(kind: str, folder: Path, log: Path, wanted: int) -> dict[str, Any]:
    """Counts of one kind: kills tried, and cases that held."""
    whole = uninterrupted(kind, folder, log)
    found: dict[str, Any] = {"cases": 0, "held": 0, "kills": 0, "broken": []}
    while found["kills"] < wanted and found["cases"] < 4 * wanted:
        seed, found["cases"] = found["cases"], found["cases"] + 1
        try:
            found["kills"] += case(kind, whole, folder, log, seed)
            found["held"] += 1
        except AssertionError as error:
            found["broken"].append(str(error)[:300])
            found["kills"] += 1
    return found


def main() -> None:
    """Kill runs, count what holds, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10, help="of each kind")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="kinds")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", action="store_true", help="only write the tables anew")
    chosen = parser.parse_args()
    if not chosen.page:
        measure(chosen.out, chosen.only or list(KINDS), chosen.kills)
    page.write()


def measure(out: Path, kinds: list[str], kills: int) -> None:
    """Write the counts of each kind that has fewer kills than are wanted."""
    begun = evidence.begin()
    known = json.loads(out.read_text())["parts"] if out.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(name) / "programs"))
        log = write_log(Path(name) / "log")
        for kind in kinds:
            if kind in known and known[kind]["kills"] >= kills:
                continue
            found = campaign(kind, Path(name), log, kills)
            print(kind, found, flush=True)
            evidence.write_part(out, kind, found, begun, list(range(found["cases"])))


if __name__ == "__main__":
    main()
