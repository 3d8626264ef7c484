"""Files of the repository outside the package, and which of them a Python file uses."""

from __future__ import annotations

import functools
import re
import subprocess
from collections import defaultdict
from pathlib import PurePosixPath

from checks import definitions
from checks.name_tables import PACKAGE, ROOT

BESIDE = ("tests/", "benchmarks/", "docs/", "examples/")  # where Python files lie that tests use
CODE_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@functools.cache
def files() -> frozenset[str]:
    """Return the repository's files, tracked or new, as paths from its root."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return frozenset(each for each in found.split("\0") if each and (ROOT / each).is_file())


@functools.cache
def _by_name() -> dict[str, list[str]]:
    """Return file names -> the files beside the package that have them."""
    found = defaultdict(list)
    for file in sorted(files()):
        if file.startswith(BESIDE):
            found[PurePosixPath(file).name].append(file)
    return dict(found)


def tests() -> list[str]:
    """Return the files of tests."""
    return sorted(each for each in files() if re.fullmatch(r"tests/(.+/)?test_\w+\.py", each))


@functools.cache
def source(file: str) -> definitions.Source:
    """Return what a Python file of the repository defines."""
    return definitions.read(ROOT / file)


@functools.cache
def imported(file: str, name: str) -> str | None:
    """Return the file beside the package that a dotted name means in a Python file; None if none.

    Tests put folders on the path, so a module is found by its name: in the same folder, among the
    tests, or elsewhere in a folder that the importing file names.
    """
    if name.split(".", maxsplit=1)[0] == PACKAGE:
        return None
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        tail = "/".join(parts[:end]) + ".py"
        known = [
            each
            for each in _by_name().get(tail.split("/")[-1], [])
            if f"/{each}".endswith(f"/{tail}")
        ]
        if known:
            return min(known, key=lambda each: _distance(file, each, tail))
    return None


def _distance(file: str, found: str, tail: str) -> tuple[bool, bool, bool, str]:
    folder = found.removesuffix(tail).rstrip("/")
    named = folder.split("/")[-1] in source(file).words
    return (
        folder != file.rpartition("/")[0],
        not named,
        not found.startswith("tests/"),
        found,
    )


@functools.cache
def neighbours(file: str) -> frozenset[str]:
    """Return the Python files beside the package that one imports, or runs by their path."""
    own = source(file)
    found = {imported(file, name) for name in own.imports}
    named = {word for word in own.words if word.endswith(".py")}
    found |= {each for word in named for each in _by_name().get(word, []) if reads(file, each)}
    return frozenset(each for each in found if each and each != file)


@functools.cache
def reached(file: str) -> frozenset[str]:
    """Return a Python file and those that it uses, however indirectly."""
    found, todo = {file}, [file]
    while todo:
        new = neighbours(todo.pop()) - found
        found |= new
        todo += new
    return frozenset(found)


def reads(reader: str, file: str) -> bool:
    """Whether a Python file seems to read (or run) a file: it has its name and its folder's, lies
    beside it, or lists its folder. Of data among the tests one name of its folders is enough."""
    own, path = source(reader), PurePosixPath(file)
    folders = set(path.parts[:-1])
    together = reader.rpartition("/")[0] == str(path.parent)
    if path.name in own.words:
        unique = len(_by_name().get(path.name, [])) < 2
        return together or unique or path.parent.name in own.words
    if file.startswith("tests/") and path.suffix != ".py":
        top = set(path.parts[:2])
        return reader.startswith("/".join(path.parts[:2])) and bool((folders - top) & own.words)
    if "__file__" not in own.whole.names:  # it takes no path from the place where it lies
        return False
    lists = f"*{path.suffix}" in own.words
    deeply = "**" in own.words or any(name.endswith(".rglob") for name in own.whole.names)
    made = path.suffix in own.words  # f"{name}.md"
    inside = path.parent.name in own.words
    return (inside and (lists or made)) or (lists and deeply and path.parts[0] in own.words)


@functools.cache
def page_code(file: str) -> str:
    """Return the code of the pages and scripts that a file of tests has by name: it may run it."""
    found = []
    for name in sorted(source(file).words):
        if name.endswith((".md", ".sh")):
            pages = [each for each in _by_name().get(name, []) if reads(file, each)]
            found += [(ROOT / page).read_text("utf-8") for page in pages]
    return "\n".join(block for text in found for block in CODE_BLOCK.findall(text) or [text])
