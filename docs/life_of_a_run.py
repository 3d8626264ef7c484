"""Make docs/life-of-a-run.md: the files and functions that one training really goes through.

``python docs/life_of_a_run.py FOLDER`` trains SAC on Pendulum-v1 until the critic's loss is first
traced, prints the call stack at each moment of ``MOMENTS`` as JSON, and ends. ``make docs`` writes
the page from it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sterling"
MOMENTS = {  # file and function: what happens there
    "training/config/resolve_settings.py:resolve_settings": "the settings are resolved and checked",
    "envs/make_world.py:make": "the environment is made",
    "algorithms/online/sac.py:init": "the state of each seed's agent is made",
    "experience/replay/replay_buffer.py:collect": "the source begins to collect",
    "algorithms/online/sac.py:act": "the policy chooses the actions",
    "algorithms/online/sac.py:learn": "one update of one seed begins",
    "algorithms/online/sac.py:critic_loss": "the critic's loss is traced",
}
# between caller and callee of every compiled program, as jax.jit itself is
PASSED_THROUGH = ("training/runtime/program_store.py",)
Stack = list[tuple[str, str]]  # of files below sterling/ and functions, the outermost first


def place(code: CodeType) -> tuple[str, str] | None:
    """Return the file and the function of some code; None where it is not Sterling's."""
    if not code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
        return None
    return str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname


def stack(frame: FrameType | None) -> Stack:
    """Return Sterling's functions on a frame's call stack."""
    found = []
    while frame is not None:
        found.append(place(frame.f_code))
        frame = frame.f_back
    return [each for each in reversed(found) if each and each[0] not in PASSED_THROUGH]


def trace(folder: str) -> None:
    """Train until the last moment, print the stacks as JSON and end this process."""
    import sterling

    found: dict[str, Stack] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        here = place(frame.f_code) if event == "call" else None
        if here is None:
            return
        moment = f"{here[0]}:{frame.f_code.co_name}"
        if moment in MOMENTS and moment not in found:
            found[moment] = stack(frame)
        if len(found) == len(MOMENTS):
            sys.setprofile(None)
            print(json.dumps(found), flush=True)
            os._exit(0)

    sys.setprofile(note)
    sterling.train("sac", "Pendulum-v1", steps=3000, out=folder)
    sys.setprofile(None)
    unseen = ", ".join(each for each in MOMENTS if each not in found)
    sys.exit(f"the run of {Path(sterling.__file__).parent} never came to {unseen} of {PACKAGE}")


def traced() -> dict[str, Stack]:
    """Return the stack at each moment of a training in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, f"{folder}/run"]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {moment: [(file, name) for file, name in found[moment]] for moment in MOMENTS}


def chain(found: dict[str, Stack]) -> list[str]:
    """Return the files on the way to all moments, each once, in the order in which they come."""
    return list(dict.fromkeys(file for calls in found.values() for file, _ in calls))


def about(file: str) -> str:
    """Return the first line of a file's docstring."""
    words = ast.get_docstring(ast.parse((PACKAGE / file).read_text())) or ""
    return " ".join(words.split("\n\n")[0].split())


def page() -> str:
    """Return docs/life-of-a-run.md."""
    found = traced()
    files = chain(found)
    lines = ["# The life of a run", ""]
    lines += ['What `sterling.train("sac", "Pendulum-v1")` goes through until its first loss,']
    lines += [f"traced in a real run by `make docs`. To read along, open {len(files)} files:", ""]
    lines += ["| | file | |", "|---|---|---|"]
    for number, file in enumerate(files, 1):
        lines.append(f"| {number} | [`{file}`](../sterling/{file}) | {about(file)} |")
    lines += ["", "The calls that lead to each moment, the outermost first:", ""]
    for moment, calls in found.items():
        lines += [f"**{MOMENTS[moment].capitalize()}**", "", "```text"]
        named = [(file, name) for file, name in calls if "<" not in name.rpartition(".")[2]]
        lines += [f"{file:<42} {name}" for file, name in dict.fromkeys(named)]
        lines += ["```", ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    trace(sys.argv[1])
