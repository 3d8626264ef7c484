"""The bugs that benchmarks/mutants plants are the bugs that it says, and tests can find them."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import FunctionType

import pytest

HERE = Path(__file__).parents[2] / "benchmarks" / "mutants"
sys.path.insert(0, str(HERE))

import sites  # noqa: E402
import swap  # noqa: E402

LEARNER = '''
class State:
    critics: Twins
    target: Twins

def learn(state, batch, key):
    """Ignore a + b here."""
    if batch is None:
        raise Mistake("there is no " + batch)
    first, second = keys.fold(key, "next"), keys.fold(key, "actor", 3)
    value = jax.lax.stop_gradient(state.target(state.normaliser(batch.obs)))
    error = masked_mean(batch.reward + 0.5 * value, batch.mask)
    return jnp.clip(error, -1.0, 1.0), first, second
'''


@pytest.fixture
def package(tmp_path):
    (tmp_path / "learner.py").write_text(LEARNER)
    return tmp_path


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("online for target", "state.target", "state.critics"),
        ("key reused", "keys.fold(key, 'next')", "keys.fold(key, 'actor')"),
        ("key reused", "keys.fold(key, 'actor', 3)", "keys.fold(key, 'actor')"),
        ("normaliser detached", "state.normaliser(batch.obs)", "batch.obs"),
        ("sign", "batch.reward + 0.5 * value", "batch.reward - 0.5 * value"),
        ("factor", "0.5 * value", "0.5 / value"),
        ("constant", "0.5", "1.0"),
        ("clip side", "jnp.clip(error, -1.0, 1.0)", "jnp.minimum(error, 1.0)"),
        ("comparison turned round", "batch is None", "batch is not None"),
    ],
)
def test_mutation_sites_include_operator_changes(package, operator, before, after):
    found = {(m.operator, m.before, m.after) for m in sites.every(package, ["learner.py"])}
    assert (operator, before, after) in found


def test_mutation_sites_drop_masks_stop_gradients_and_checks(package):
    found = {(m.operator, m.after) for m in sites.every(package, ["learner.py"])}
    plain = "batch.reward + 0.5 * value"
    assert ("mask dropped", f"masked_mean({plain}, jnp.ones_like(batch.mask))") in found
    assert ("stop_gradient removed", "state.target(state.normaliser(batch.obs))") in found
    assert ("check dropped", "pass") in found


def test_mutation_sites_exclude_strings(package):
    assert not [m for m in sites.every(package, ["learner.py"]) if "there is" in m.before[:20]]


def test_planted_mutant_equals_its_description(package):
    for mutant in sites.every(package, ["learner.py"]):
        tree = sites.planted(package, mutant)
        assert ast.unparse(tree) != ast.unparse(ast.parse(LEARNER))
        assert mutant.after in " ".join(ast.unparse(tree).split()) or len(mutant.after) == 160


def test_mutant_sample_is_determined_by_its_seed(package):
    every = sites.every(package, ["learner.py"])
    names = [m.name for m in sites.sample(every, 10, 1)]
    assert names == [m.name for m in sites.sample(every[::-1], 10, 1)]
    assert names != [m.name for m in sites.sample(every, 10, 2)]
    assert len({m.operator for m in sites.sample(every, 10, 1)}) == 10


def test_planted_mutant_replaces_functions_already_imported(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text("def add(a, b):\n    return [x + y for x, y in zip(a, b)]\n")
    space: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    held: FunctionType = space["add"]
    mutant = next(m for m in sites.every(tmp_path, ["sums.py"]) if m.operator == "sign")
    swap.exchange(sites.planted(tmp_path, mutant), path, ["add"], {"add": [held]})
    assert held([1, 2], [5, 5]) == [-4, -3]


def test_mutants_page_excludes_equivalent_mutants_and_lists_missed_ones():
    spec = importlib.util.spec_from_file_location("mutants_report", HERE / "report.py")
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    bug = {"folder": "equations", "operator": "sign", "where": "equations/value_losses.py:3"}
    bug |= {"function": "huber", "change": "a + b -> a - b"}
    found = {**bug, "outcome": "killed", "reason": "AssertionError: Not equal to tolerance"}
    rows = [
        *[found] * 6,
        {**found, "reason": "timeout"},
        {**bug, "outcome": "survived", "read": "equivalent: b is 0"},
        {**bug, "outcome": "survived", "where": "equations/value_losses.py:9"},
    ]
    page = report.markdown({"asked": 9, "control": None, "mutants": rows}, ["*Measured here.*", ""])
    assert "*Measured here.*" in page
    assert "| equations | 9 | 7 | 6 | 1 | 1 | 87.5 % |" in page
    missed, equal = page.split("## Missed")[1].split("## Equivalent")
    assert "equations/value_losses.py:9" in missed
    assert "not read yet" in missed
    assert "b is 0" in equal
