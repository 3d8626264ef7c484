"""The house keeps its shape: no import circles, short files, small rooms, like algorithms.

Which room may import which is held by import-linter (``[tool.importlinter]`` in pyproject.toml).
"""

import ast
import builtins
import dis
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from every_case import every

ROOT = Path(__file__).parents[1] / "sterling"
FILES = sorted(ROOT.rglob("*.py"))
BELOW_ALGORITHMS = {"types", "actor", "field_types", "random_keys", "needs", "config_class"}
BELOW_ALGORITHMS |= {"lookup", "problem", "nets", "equations", "language", "planning"}
READING_ORDER = ["Config", "State", "needs", "init", "act", "value", "learn"]
OPTIONAL = ("value", "State")  # who builds on another algorithm may keep its state
FOLDER_LIMIT = 13  # files beside __init__.py
ALL_OF_ONE_KIND = {"equations", "data/formats", "commands"}  # and grow with what there is
# names that nobody would search for; each was the name of a file or function once
RIDDLES = (
    *("asked", "begun", "beside", "board", "chosen", "crew", "crossed", "fit", "fits", "gone"),
    *("guarded", "lanes", "lap", "lasting", "leaves", "leaving", "letters", "lines", "located"),
    *("longer", "looks", "material", "members", "of", "owned", "part", "passing"),
    *("patience", "posing", "restated", "room", "rows", "seat", "serve", "settled", "solved"),
    *("spelled", "spoken", "spread", "talk", "told", "windows", "words"),
)
RIDDLES_IN_TEXT = re.compile(
    r"\b(nothing is lived|told anew|is told of|what is known of|the like|untold|who lives)\b",
    re.IGNORECASE,
)


def in_sterling(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> set[str]:
    """Return the files of Sterling that a file imports, lazily or for types included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sterling":
            found |= {file_of(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {file_of(a.name) for a in node.names if a.name.startswith("sterling.")}
    return found


def file_of(module: str, name: str = "") -> str:
    """Return the file of a module, or of the one by that name in it, relative to ``sterling``."""
    place = ROOT.parent.joinpath(*module.split("."))
    for each in (place / f"{name}.py", place / name / "__init__.py", place.with_suffix(".py")):
        if each.exists() and (name or each.name != "__init__.py"):
            return str(each.relative_to(ROOT))
    return str((place / "__init__.py").relative_to(ROOT))


def test_imports_make_no_circles():
    edges = {str(path.relative_to(ROOT)): imported(path) for path in FILES}
    edges = {here: there - {here} for here, there in edges.items()}
    while leaves := {here for here, there in edges.items() if not there & edges.keys()}:
        edges = {here: there for here, there in edges.items() if here not in leaves}
    circular = {here: sorted(there & edges.keys()) for here, there in edges.items()}
    assert not circular


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def annotated(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            names = [] if part is None else ast.walk(part)
            yield from (each.id for each in names if isinstance(each, ast.Name))


@every("path", FILES, in_sterling)
def test_every_name_is_defined(path):
    """What linters call F821, which shape annotations forbid them to look for. Shapes' axes are
    written small, so a name in an annotation that begins with a capital must be defined too."""
    module = compile(path.read_text(), path, "exec")
    instructions = [i for code in codes(module) for i in dis.get_instructions(code)]
    known = {i.argval for i in dis.get_instructions(module) if i.opname == "STORE_NAME"}
    known |= set(dir(builtins)) | {"__file__", "__annotations__"}
    read = {i.argval for i in instructions if i.opname == "LOAD_GLOBAL"}
    read |= {name for name in annotated(ast.parse(path.read_text())) if name[0].isupper()}
    assert read <= known, f"not defined: {sorted(read - known)}"


def algorithm_files() -> list[Path]:
    return [p for p in (ROOT / "algorithms").glob("*/*.py") if p.name != "__init__.py"]


@every("path", algorithm_files(), in_sterling)
def test_algorithm_modules_import_only_lower_packages(path):
    rooms = {Path(file).parts[0].removesuffix(".py") for file in imported(path)}
    assert rooms - {"algorithms"} <= BELOW_ALGORITHMS


@every("path", algorithm_files(), in_sterling)
def test_algorithm_schedule_length_is_stored_as_planned(path):
    """By that name a larger budget finds it (training/driver.py)."""
    text = path.read_text()
    assert "spec.iterations" not in text or "\n    planned: " in text


@every("path", algorithm_files(), in_sterling)
def test_algorithm_modules_define_functions_in_one_order(path):
    names = [n.name for n in ast.parse(path.read_text()).body if hasattr(n, "name")]
    if "Config" not in names:
        return  # a part of an algorithm, such as its discrete form
    order = [name.replace("act", "recall") if "recall" in names else name for name in READING_ORDER]
    speaks = path.parent.name == "language"  # a sampler asks the model in its State
    optional = (*OPTIONAL, "act") if speaks else OPTIONAL
    places = [names.index(name) for name in order if name in names or name not in optional]
    assert not speaks or "act" not in names
    assert places == sorted(places)
    assert len(path.read_text().splitlines()) <= 260


@every("path", FILES, in_sterling)
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            words = ast.get_docstring(node, clean=False) or ""
            lines = node.end_lineno - node.lineno + 1 - len(words.splitlines())
            assert lines <= 40, f"{node.name} is {lines} lines"


def rooms() -> list[Path]:
    return [ROOT, *sorted(path.parent for path in ROOT.rglob("*/__init__.py"))]


@every("room", rooms(), in_sterling)
def test_source_folders_are_small_and_have_a_docstring(room):
    files = [path for path in room.glob("*.py") if path.name != "__init__.py"]
    name = str(room.relative_to(ROOT))
    assert len(files) <= FOLDER_LIMIT or name in ALL_OF_ONE_KIND
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text()))


def test_a_file_name_is_used_once():
    names = Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    assert not [name for name, count in names.items() if count > 1]


@every("path", FILES, in_sterling)
def test_source_names_avoid_listed_unclear_words(path):
    text = path.read_text()
    module = ast.parse(text)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {n.name.lstrip("_") for n in module.body if isinstance(n, functions)}
    # a command's file is named after the command, which may be a word such as serve
    stem = set() if path.parent.name == "commands" else {path.stem}
    assert not (stem | names) & set(RIDDLES)
    assert "of" not in {n.name for n in ast.walk(module) if isinstance(n, functions)}
    assert not RIDDLES_IN_TEXT.findall(text)


def test_listing_benchmark_names_existing_files():
    bugs = json.loads((ROOT.parent / "benchmarks" / "listing" / "bugs.json").read_text())
    assert len(bugs) == 30
    assert all((ROOT.parent / file).exists() for bug in bugs for file in bug["files"])
