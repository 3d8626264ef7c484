"""Damage valid files and read them: the outcome is a result or one line, whatever was damaged.

    python benchmarks/reliability/damage.py [--cases 300] [--out FILE] [--page]

Each case copies a valid file, changes some of its bytes by a seeded draw (bits turned, parts cut
out, zeroed, repeated or exchanged, the end cut off), and reads it with the loaders that users call,
in a process of its own with 4 GiB of address space and 20 seconds. *Held* is a result, or a
``Mistake`` of one line; a traceback, a crash, a hang or a lack of memory is not. Writes the
counts to FILE after each kind of file, and the tables of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sterling.types import Mistake

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1])]
import page  # noqa: E402
from files import READERS, WRITERS  # noqa: E402

from benchmarks import evidence  # noqa: E402

SPACE, SECONDS = 4 << 30, 20  # bytes of address space, and time, that a case may take
OUT = page.RESULTS / "reliability-damage.json"


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The bytes with one to four changes."""
    made = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(max(len(made), 1))
        size = min(draw.choice((1, 2, 8, 64, 1024)), len(made) - at)
        kind = draw.choice(("bit", "random", "zero", "ones", "cut", "repeat", "end", "digit"))
        if not made:
            return b""
        if kind == "bit":
            made[at] ^= 1 << draw.randrange(8)
        elif kind in ("random", "zero", "ones"):
            fill = {"zero": 0, "ones": 255}
            made[at : at + size] = bytes(fill.get(kind, draw.randrange(256)) for _ in range(size))
        elif kind == "cut":
            del made[at : at + size]
        elif kind == "repeat":
            made[at:at] = made[at : at + size]
        elif kind == "end":
            del made[at:]
        else:
            _change_digit(made, draw)
    return bytes(made)


def _change_digit(made: bytearray, draw: random.Random) -> None:
    """Change a number that is written out, as in the head of a file."""
    digits = [at for at, byte in enumerate(made[:4096]) if 48 <= byte <= 57]
    if digits:
        at = draw.choice(digits)
        made[at : at + 1] = draw.choice((b"9", b"0", b"-1", b"99999999999", b"1e9", b"null"))


def write_valid(root: Path, kinds: list[str]) -> dict[str, Path]:
    """A valid file or folder of each kind."""
    made: dict[str, Path] = {}
    for writer, own in WRITERS.items():
        if wanted := [kind for kind in own if kind in kinds]:
            made |= {kind: path for kind, path in writer(root).items() if kind in wanted}
    return made


def _written_elsewhere(root: Path, kinds: list[str]) -> dict[str, Path]:
    """``write_valid`` in a process of its own: one in which JAX works must not be forked."""
    program = (
        f"import sys, json; sys.path.insert(0, {str(Path(__file__).parent)!r}); import damage\n"
        f"made = damage.write_valid(damage.Path({str(root)!r}), {kinds!r})\n"
        "print(json.dumps({name: str(path) for name, path in made.items()}))"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return {name: Path(path) for name, path in json.loads(said.stdout.splitlines()[-1]).items()}


def outcome(read: Callable[[Path], Any], path: Path) -> str:
    """ "result", "one line", or what else reading came to, in a process with limits."""
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inward)
        _read_and_leave(read, path, outward)
    os.close(outward)
    with os.fdopen(inward, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        return f"no answer within {SECONDS} s"
    return said if code == 0 and said else f"ended with {code}"


def _read_and_leave(read: Callable[[Path], Any], path: Path, outward: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    signal.alarm(SECONDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    said = "result"
    try:
        read(path)
    except Mistake as error:
        said = "several lines" if "\n" in str(error) else "one line"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    os.write(outward, said.encode()[:4000])
    os._exit(0)


def case(kind: str, valid: Path, scratch: Path, seed: int) -> str:
    """The outcome of reading one damaged copy."""
    draw = random.Random(f"{kind} {seed}")
    path = scratch / valid.name
    if valid.is_dir():
        shutil.copytree(valid, path)
        files = sorted(file for file in path.rglob("*") if file.is_file())
    else:
        shutil.copy(valid, path)
        files = [path]
    file = draw.choice(files)
    file.write_bytes(damaged(file.read_bytes(), draw))
    found = outcome(READERS[kind], path)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found


def campaign(
    cases: int, kinds: list[str], keep: Callable[[str, Any], Any] = lambda kind, counts: None
) -> dict[str, Any]:
    """Return counts by kind of file: tried, held, and what did not; ``keep`` gets each at once."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        root, scratch = Path(name) / "valid", Path(name) / "scratch"
        root.mkdir()
        scratch.mkdir()
        valid = _written_elsewhere(root, kinds)
        for kind in kinds:
            READERS[kind](valid[kind])  # imports once what every case needs
            said = Counter(case(kind, valid[kind], scratch, seed) for seed in range(cases))
            held = said["result"] + said["one line"]
            broken = {k: v for k, v in said.items() if k not in ("result", "one line")}
            found[kind] = {"tried": cases, "held": held, "refused": said["one line"]}
            found[kind]["broken"] = broken
            print(kind, found[kind], flush=True)
            keep(kind, found[kind])
    return found


def main() -> int:
    """Damage files, count what holds, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300, help="of each kind of file")
    parser.add_argument("--only", action="append", choices=list(READERS))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", action="store_true", help="only write the tables anew")
    chosen = parser.parse_args()
    if chosen.page:
        page.write()
        return 0
    begun, out, seeds = evidence.begin(), chosen.out.absolute(), list(range(chosen.cases))
    found = campaign(
        chosen.cases,
        chosen.only or list(READERS),
        lambda kind, counts: evidence.write_part(out, kind, counts, begun, seeds),
    )
    page.write()
    return int(any(each["held"] < each["tried"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
