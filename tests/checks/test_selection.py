"""A change selects the tests that a bug planted there makes fail, and not the whole suite."""

import pytest

from checks import durations, selection, tree_files

# a changed file -> a test that depends on it, and one of its cases if it has several
PLANTED = [
    ("sterling/equations/returns.py", "tests/equations/test_returns.py", "test_any", None),
    (
        "sterling/algorithms/q_learning/iqn.py",
        "tests/contract/test_update_oracles.py",
        "test_its_updates_equal_their_oracles",
        "iqn",
    ),
    (
        "tests/contract/oracles/q_learning/iqn.py",
        "tests/contract/test_update_oracles.py",
        "test_its_updates_equal_their_oracles",
        "iqn",
    ),
    ("sterling/data/formats/d4rl.py", "tests/data/test_formats.py", "test_any", None),
    (
        "sterling/commands/show.py",
        "tests/report/test_episodes.py",
        "test_show_prints_films_and_writes_a_page",
        None,
    ),
    ("docs/levels.md", "tests/test_levels_page.py", "test_any", None),
    ("docs/tutorials/for-researchers.md", "tests/test_tutorials.py", "test_any", None),
    ("sterling/lookup/peer_names.json", "tests/test_peer_names.py", "test_any", None),
    ("tests/contract/cases.py", "tests/contract/test_probes.py", "test_any", None),
    ("tests/algorithms/cma_es/numbers.json", "tests/algorithms/test_cma_es.py", "test_any", None),
    ("sterling/nets/transformer.py", "tests/nets/test_transformer.py", "test_any", None),
    ("sterling/envs/native/maze.py", "tests/envs/test_maze.py", "test_any", None),
]


@pytest.mark.parametrize(("changed", "file", "test", "case"), PLANTED)
def test_a_change_selects_the_tests_that_find_a_bug_there(changed, file, test, case):
    for path in (changed, file):
        assert path in tree_files.files()
    chosen = selection.select([changed], [file])[file]
    cases = chosen.get("*") or chosen[test]
    assert cases.keeps(case)


@pytest.mark.parametrize("file", ["tests/envs/conftest.py", "Makefile", "requirements/locked.txt"])
def test_what_every_test_needs_selects_everything(file):
    assert selection.select([file]) is None


def test_one_algorithm_selects_its_own_cases():
    chosen = selection.select(["sterling/algorithms/q_learning/iqn.py"])
    cases = chosen["tests/contract/test_update_oracles.py"]["test_its_updates_equal_their_oracles"]
    assert cases.keeps("iqn-double")
    assert not cases.keeps("dqn")
    assert not cases.keeps("qr-dqn")
    assert durations.total(durations.load(), chosen) <= 5 * 60
    assert len(chosen) < len(tree_files.tests()) / 4


def test_a_page_selects_no_test_of_an_algorithm():
    assert not selection.select(["docs/levels.md"], ["tests/algorithms/test_sac.py"])


def test_a_case_is_kept_by_the_longest_name_in_its_identity():
    cases = selection.Cases(algorithms=("ppo",), unnamed=True)
    assert cases.keeps("ppo-limits")
    assert not cases.keeps("ppo-lagrangian-limits")
    assert not cases.keeps("recurrent-ppo-both")
    assert cases.keeps("0.5-True")
