"""A test of all cases names every case that fails, whatever fails in it."""

import pytest
from every_case import every


def tried(check, names, cases, label=str, **fixtures):
    with pytest.raises(AssertionError) as caught:
        every(names, cases, label)(check)(**fixtures)
    return str(caught.value)


def test_every_case_that_fails_is_named_and_the_others_are_tried():
    seen = []

    def check(number):
        seen.append(number)
        if number == 4:
            raise KeyError("four")
        if number == 5:
            pytest.fail("five")
        if number == 6:
            pytest.skip("six")
        assert number < 2

    said = tried(check, "number", range(7), lambda number: f"n{number}")
    assert seen == list(range(7))
    assert [line.split(":")[0].split()[0] for line in said.splitlines() if line[0] == "n"] == [
        "n2", "n3", "n4", "n5", "n6",
    ]  # fmt: skip
    assert said.startswith("5 of 7 fail\n")
    for words in ("assert 3 < 2", "KeyError", "five", "six"):
        assert words in said


def test_fixtures_are_passed_on_and_a_case_has_several_values():
    def check(word, count, limit):
        assert len(word) * count <= limit, "too long"

    every("word, count", [("a", 1), ("bb", 2)])(check)(limit=4)
    assert "('bb', 2): AssertionError" in tried(check, "word, count", [("bb", 2)], limit=3)


@every("number", [1, 2])
def test_pytest_gives_such_a_test_its_fixtures(number, tmp_path):
    assert tmp_path.is_dir()
    assert number


def test_no_cases_are_no_proof():
    assert "there are no cases" in tried(lambda path: None, "path", [])
