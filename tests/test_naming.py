"""Words a user typed."""

import functools

import pytest

from sterling.naming import called, hint, literal


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("pp", "; did you mean ppo?"),
        ("SAK", "; did you mean SAC?"),
        ("transformer", "; there are ppo, SAC"),
    ],
)
def test_hint(wrong, said):
    assert hint(wrong, ["ppo", "SAC"], "there are ppo, SAC") == said


def test_hint_is_nothing_where_nothing_is_near():
    assert hint("transformer", ["ppo"]) == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("True", True),
        ("false", False),
        ("none", None),
        ("[1, 2]", [1, 2]),
        ("a", "a"),
    ],
)
def test_literal(text, value):
    assert literal(text) == value


def test_what_makes_another_environment_has_another_name():
    def make():
        return None

    one, other = (
        lambda: 1,
        lambda: 2,
    )
    names = [called(each) for each in (make, one, other, functools.partial(make, 1, size=2), dict)]
    assert names[0] == "make"
    assert names[1].startswith("<lambda test_naming.py:")
    assert names[3:] == ["make(1, size=2)", "dict"]
    assert len(set(names)) == 5
