"""The tutorials are done as a reader does them: files are as shown, commands run, output is alike.

A block of Python whose first line names a file shows that file. A block of bash is typed in a
folder with ``examples`` in it; the text after it is what it said, with ``...`` for lines left out.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# (\S+\.py)\n")
NAMES = [page.stem for page in PAGES]


def blocks(page):
    return BLOCK.findall(page.read_text())


def alike(line):
    """What must be equal in two lines of output: all but numbers, strips and spaces."""
    words = re.sub(r"[▁▂▃▄▅▆▇█]+", "", line)
    words = re.sub(r"[-+~]?\d[\d,.:e-]*|\binf\b|\bnan\b", "#", words)
    return " ".join(words.split())


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_tutorial_has_its_sections_and_shows_example_files_unchanged(page):
    text = page.read_text()
    for words in ("**You need**", "**It takes**", "## Where to go next"):
        assert words in text
    for kind, code in blocks(page):
        named = FILE.match(code)
        if kind == "python" and named and (ROOT / named[1]).exists():
            assert code[named.end() :] == (ROOT / named[1]).read_text(), named[1]
        elif kind == "python":
            ast.parse(code)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_of_a_tutorial_runs_as_it_stands(page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # the tests' own processes set COLUMNS, at which the commands would wrap their lines
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    said = ""
    for kind, code in blocks(page):
        named = FILE.match(code)
        if kind == "python" and named:
            if not (ROOT / named[1]).exists():
                (tmp_path / named[1]).write_text(code)
        elif kind in ("bash", "python"):
            how = ["bash", "-ec", code] if kind == "bash" else [sys.executable, "-c", code]
            done = subprocess.run(
                how,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=tmp_path,
                env={**env, "PATH": path},
                timeout=1500,
            )
            assert done.returncode == 0, f"{code}{done.stdout[-2000:]}"
            said = {alike(line) for line in done.stdout.splitlines()}
        elif kind == "text":
            shown = [alike(line) for line in code.splitlines() if "..." not in line]
            assert not [line for line in shown if line not in said]
