"""References: what has their form, what they import, and what is said where they cannot."""

import importlib.util
import sys

import pytest

from sterling.envs import registry
from sterling.language import worlds
from sterling.lookup import user_imports
from sterling.types import Mistake


@pytest.mark.parametrize("word", ["a.py", "a/b.py:make", "a.b", "a:make", "a.b:C.d", "~/x.py"])
def test_user_import_references_are_recognised(word):
    assert user_imports.is_reference(word)


@pytest.mark.parametrize(
    "word", ["ppo", "dr-grpo", "HalfCheetah-v5", "probe:both", "tools:arithmetic", "data/x.npz"]
)
def test_plain_names_are_not_user_import_references(word):
    assert not user_imports.is_reference(word)


def test_environment_names_are_not_user_import_references():
    names = [f"{backend}:some" for backend in registry.BACKENDS]
    names += [name for name in worlds.world_names() if ":" in name]
    assert not [name for name in names if user_imports.is_reference(name)]


def test_a_file_is_imported_once_and_may_import_its_neighbours(tmp_path):
    (tmp_path / "beside_it.py").write_text("value = 7\n")
    (tmp_path / "main_one.py").write_text("import beside_it\nvalue = beside_it.value\n")
    first = user_imports.load(str(tmp_path / "main_one.py"))
    assert first.value == 7
    assert user_imports.load(str(tmp_path / "main_one.py")) is first
    assert user_imports.reference_to(first) == str(tmp_path / "main_one.py")


def test_a_file_may_be_called_as_a_module_of_the_standard_library(tmp_path):
    (tmp_path / "queue.py").write_text("value = 7\n")
    assert user_imports.load(f"{tmp_path}/queue.py:value") == 7
    import queue

    assert hasattr(queue, "Queue")


def test_importable_user_objects_have_a_reference(written):
    maze = user_imports.load(f"{written}/maze.py")
    for thing in (maze.make, maze.Corridor, maze.task):
        assert user_imports.load(user_imports.reference_to(thing)) is thing
    assert user_imports.reference_to(lambda: None) is None
    assert user_imports.reference_to(maze.Corridor(9)) is None
    assert user_imports.reference_to(sys.modules["__main__"]) is None
    assert user_imports.reference_to(importlib.util.find_spec) == "importlib.util:find_spec"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{}/maz.py:make", r"there is no file .*maz.py; did you mean .*maze.py\?"),
        ("{}/maze.py:mak", r"maze.py has no 'mak'; did you mean make\?"),
        ("no_such.module:make", "there is no module no_such.module\. Run from the directory"),
        ("{}/syntax.py", r"syntax.py cannot be imported: SyntaxError.*line 1"),
        ("{}/raises.py", r"raises.py cannot be imported: ZeroDivisionError.*\(raises.py:2\)"),
        ("{}/leaves.py", r"leaves.py cannot be imported: SystemExit: 3"),
        ("{}/lacks.py", r"lacks.py cannot be imported: ModuleNotFoundError: No module named 'nix'"),
    ],
)
def test_unimportable_user_code_is_refused_in_one_line(word, said, written):
    (written / "syntax.py").write_text("def\n")
    (written / "raises.py").write_text("x = 1\n1 / 0\n")
    (written / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (written / "lacks.py").write_text("import nix\n")
    with pytest.raises(Mistake, match=said) as found:
        user_imports.load(word.format(written))
    assert "\n" not in str(found.value)
    assert user_imports.split_reference(word)[0].rpartition("/")[2].removesuffix(
        ".py"
    ) not in sys.modules or ("maze" in word)


def test_file_that_was_imported_is_found_without_a_search(tmp_path, monkeypatch):
    file = tmp_path / "found_once.py"
    file.write_text("number = 3\n")
    module, looked = user_imports.load(str(file)), []
    compare = user_imports._is_from
    monkeypatch.setattr(
        user_imports, "_is_from", lambda *about: looked.append(about) or compare(*about)
    )
    assert user_imports.load(str(file)) is module
    assert len(looked) == 1
    del sys.modules["found_once"]
    assert user_imports.load(str(file)) is not module
