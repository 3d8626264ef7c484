"""Words a user typed."""

import functools

import pytest

from sterling.lookup.factory_names import factory_name
from sterling.lookup.name_suggestions import did_you_mean, parse_literal


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("pp", "; did you mean ppo?"),
        ("SAK", "; did you mean SAC?"),
        ("transformer", "; there are ppo, SAC"),
    ],
)
def test_did_you_mean_suggests_the_nearest_name(wrong, said):
    assert did_you_mean(wrong, ["ppo", "SAC"], "there are ppo, SAC") == said


def test_did_you_mean_is_empty_where_nothing_is_near():
    assert did_you_mean("transformer", ["ppo"]) == ""


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
def test_parse_literal_of_command_line_values(text, value):
    assert parse_literal(text) == value


def test_factory_names_of_different_factories_differ():
    def make():
        return None

    one, other = (
        lambda: 1,
        lambda: 2,
    )
    names = [
        factory_name(each) for each in (make, one, other, functools.partial(make, 1, size=2), dict)
    ]
    assert names[0] == "make"
    assert names[1].startswith("<lambda test_names.py:")
    assert names[3:] == ["make(1, size=2)", "dict"]
    assert len(set(names)) == 5


def test_factory_name_includes_closure_and_default_values():
    def made(size, kind=int, other=None):
        def make(words="a"):
            return kind(size, words, other)

        return make, lambda: kind(size)

    (make, one), (_, other) = made(2), made(2, float)
    assert factory_name(make) == "make(kind=int, size=2, words='a')"
    assert factory_name(one).endswith(" kind=int size=2>")
    assert factory_name(other).endswith(" kind=float size=2>")


def test_factory_names_of_lambdas_in_a_loop_differ():
    names = []
    loop = "for kind in (int, str): names.append(called(lambda: kind(1)))"
    exec(loop, {"called": factory_name, "names": names})
    assert names == ["<lambda <string>:1 kind=int>", "<lambda <string>:1 kind=str>"]
