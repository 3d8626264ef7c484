"""Words a user typed."""

import pytest

from sterling.naming import hint, literal


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
