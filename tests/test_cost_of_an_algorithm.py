"""What one more listed algorithm costs make test has a limit, whoever adds a test."""

import ast
import types
from pathlib import Path

import cost_of_an_algorithm as cost
import pytest

TESTS = Path(__file__).parent


def test_an_algorithm_adds_few_cases_and_two_of_them_compile():
    assert sum(cost.LISTED.values()) <= cost.MOST_CASES
    assert sum(cost.COMPILING.values()) <= cost.MOST_COMPILING


@pytest.mark.parametrize("test", cost.LISTED)
def test_what_is_listed_is_there(test):
    file, name = test.split("::")
    tree = ast.parse((TESTS / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def collected(ids, **params):
    """Items as pytest collects them, of one test with these cases."""
    for each in ids:
        call = types.SimpleNamespace(id=each, params=params)
        path = TESTS / "envs" / "test_new.py"
        yield types.SimpleNamespace(path=path, originalname="test_new", callspec=call)


NAMES = ("a2c", "awac", "bc", "c51", "cql", "ddpg", "dpo", "dqn", "droq", "dt", "edac", "fql")


def test_a_test_with_a_case_of_every_algorithm_is_named():
    (line,) = cost.grown(collected(NAMES))
    assert line.startswith("envs/test_new.py::test_new has 1 cases of each of 12 algorithms")
    assert cost.grown(collected([f"sterling/algorithms/{name}.py" for name in NAMES]))
    assert not cost.grown(collected(NAMES[:4]))
    assert not cost.grown(collected([str(number) for number in range(99)]))


def test_more_cases_than_are_listed_are_named(monkeypatch):
    monkeypatch.setitem(cost.LISTED, "envs/test_new.py::test_new", 1)
    assert not cost.grown(collected(NAMES))
    assert cost.grown(collected([f"{name} {case}" for name in NAMES for case in "xy"]))


def test_several_names_in_one_word_are_told_apart():
    call = types.SimpleNamespace(id="recurrent-ppo choices", params={"file": Path("x/cma_es.py")})
    assert cost.named(call) == {"recurrent-ppo", "cma-es"}
