"""The house keeps its shape: imports run one way, files stay short, algorithms read alike."""

import ast
import builtins
import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parents[1] / "sterling"
FILES = sorted(ROOT.rglob("*.py"))
RANK = {
    **dict.fromkeys(
        ("types", "actor", "agents", "channels", "keys", "naming", "disk", "notice", "unseen"), 0
    ),
    **dict.fromkeys(("leaving", "pickling", "importing", "plugins"), 0),
    **dict.fromkeys(("config_class", "field_types"), 0),
    **{"references": 0, "goals": 0, "agents": 0, "seeds": 0, "collector": 0, "language": 1},
    **{"nets": 1, "equations": 1, "envs": 1, "experience": 1, "statistics": 1, "data": 1},
    **{"algorithms": 2, "report": 2},
    **{"training": 3, "judging": 4, "tuning": 4, "factory": 4, "checking": 4},
    **{"commands": 5, "options": 6, "cli": 6},
    **{"__init__": 6, "__main__": 7},
}
BELOW_ALGORITHMS = {"types", "actor", "agents", "field_types", "keys", "naming", "unseen"}
BELOW_ALGORITHMS |= {"nets", "equations", "language"}
READING_ORDER = ["Config", "State", "needs", "init", "act", "value", "learn"]


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The parts of Sterling that a file imports at its top level, lazily or for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sterling":
            words = node.module.split(".")
            found |= {words[1]} if len(words) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sterling.")}
    return found & set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    here = part(path)
    above = {there for there in imports(path) if there != here and RANK[there] > RANK[here]}
    assert not above, f"{here} must not import {above}"


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_is_defined(path):
    """What linters call F821, which shape annotations forbid them to look for."""
    module = compile(path.read_text(), path, "exec")
    words = [i for code in codes(module) for i in dis.get_instructions(code)]
    known = {i.argval for i in dis.get_instructions(module) if i.opname == "STORE_NAME"}
    known |= set(dir(builtins)) | {"__file__", "__annotations__"}
    read = {i.argval for i in words if i.opname == "LOAD_GLOBAL"}
    assert read <= known, f"not defined: {sorted(read - known)}"


def algorithm_files() -> list[Path]:
    return [p for p in (ROOT / "algorithms").glob("*/*.py") if p.name != "__init__.py"]


@pytest.mark.parametrize("path", algorithm_files(), ids=lambda path: path.stem)
def test_an_algorithm_knows_nothing_of_files_loops_and_loggers(path):
    assert imports(path) - {"algorithms"} <= BELOW_ALGORITHMS


@pytest.mark.parametrize("path", algorithm_files(), ids=lambda path: path.stem)
def test_the_length_of_a_schedule_is_called_planned(path):
    """By that name a larger budget finds it (training/run.py)."""
    text = path.read_text()
    assert "spec.iterations" not in text or "\n    planned: " in text


@pytest.mark.parametrize("path", algorithm_files(), ids=lambda path: path.stem)
def test_an_algorithm_reads_in_one_order(path):
    names = [n.name for n in ast.parse(path.read_text()).body if hasattr(n, "name")]
    if "Config" not in names:
        return  # a part of an algorithm, such as its discrete form
    order = [name.replace("act", "recall") if "recall" in names else name for name in READING_ORDER]
    places = [names.index(name) for name in order if name in names or name != "value"]
    assert places == sorted(places)
    assert len(path.read_text().splitlines()) <= 260


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            words = ast.get_docstring(node, clean=False) or ""
            lines = node.end_lineno - node.lineno + 1 - len(words.splitlines())
            assert lines <= 40, f"{node.name} is {lines} lines"
