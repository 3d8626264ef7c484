"""Parts of the slow tests are equal, complete, and not run twice for one commit."""

import subprocess
import sys

import pytest

from checks import passed_parts, read_durations, slow_parts

TESTS = [
    *(f"tests/a.py::test_{name}[{case}]" for case in "pqrs" for name in ("one", "two")),
    *(f"tests/b.py::test_{number}" for number in range(5)),
    *(f"tests/c{number}.py::test_it" for number in range(20)),
]
SECONDS = {"tests/a.py::test_one[p]": 9.0, "tests/c3.py::test_it": 7.0}


@pytest.mark.parametrize("count", [1, 3, 6])
def test_parts_are_disjoint_and_complete_whatever_the_order(count):
    parts = slow_parts.divide(TESTS, SECONDS, count)
    assert sorted(test for part in parts for test in part) == sorted(TESTS)
    other = slow_parts.divide(TESTS[::-1], SECONDS, count)
    assert [set(part) for part in parts] == [set(part) for part in other]


def test_a_case_stays_together_and_parts_take_about_equally_long():
    parts = slow_parts.divide(TESTS, SECONDS, 2)
    for case in "pqrs":
        pair = {f"tests/a.py::test_{name}[{case}]" for name in ("one", "two")}
        assert sum(pair <= set(part) for part in parts) == 1
    one, other = (sum(SECONDS.get(test, 0.5) for test in part) for part in parts)
    assert abs(one - other) <= 1.0


@pytest.mark.parametrize("words", ["0/6", "7/6", "3", "a/b", "3/"])
def test_a_part_that_cannot_be_is_refused(words):
    with pytest.raises(ValueError, match="Use for example 3/6"):
        slow_parts.parse(words)


@pytest.fixture
def repository(tmp_path):
    """A repository with a lock file and one commit."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / passed_parts.LOCK).write_text("jax==1\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_part_that_passed_is_not_run_again(repository, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "runs"
    write = [sys.executable, "-c", f"open({str(log)!r}, 'a').write('x')"]
    fail = [sys.executable, "-c", "raise SystemExit(3)"]
    assert passed_parts.run(repository, "1/2", fail) == 3
    for part in ("1/2", "1/2", "2/2"):
        assert passed_parts.run(repository, part, write) == 0
    assert log.read_text() == "xx"
    (repository / "new.py").write_text("")  # never skipped on a changed tree
    assert passed_parts.run(repository, "1/2", write) == 0
    assert log.read_text() == "xxx"


def test_durations_are_read_from_junit_files(tmp_path):
    file = tmp_path / "slow.xml"
    file.write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_b" name="test_c[d]" time="2.34"/>'
        '<testcase classname="tests.a.test_b" name="test_short" time="0.2"/>'
        '<testcase classname="tests.a.test_b" name="test_no" time="9"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    measured = read_durations.read([file])
    assert read_durations.merge({"x": 1.0}, measured) == {
        "tests/a/test_b.py::test_c[d]": 2.3,
        "x": 1.0,
    }
