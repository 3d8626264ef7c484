"""Algorithms from outside: found by every kind of word, refused in one line, shown as options."""

import dataclasses
import types

import jax
import pytest

import sterling
from sterling import algorithms
from sterling.algorithms.online import ppo
from sterling.algorithms.user_algorithm import require_algorithm
from sterling.cli import main
from sterling.cli_options import parse_command_line
from sterling.commands import train
from sterling.commands.options import algorithm_options
from sterling.lookup import user_imports
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.types import Feed, Mistake, Needs, config


class Mine:
    """PPO as an object of this module."""

    Config = ppo.Config
    needs = staticmethod(ppo.needs)
    init = staticmethod(ppo.init)
    act = staticmethod(ppo.act)
    learn = staticmethod(ppo.learn)


def test_user_algorithm_file_module_and_object_have_one_reference(written, monkeypatch):
    path = f"{written}/mine.py"
    module = user_imports.load(path)
    monkeypatch.chdir(written)
    assert algorithms.reference_to("mine.py") == algorithms.reference_to(module) == path
    assert algorithms.find(path) is module
    assert algorithms.reference_to(ppo) == algorithms.reference_to("ppo") == "ppo"
    word = algorithms.reference_to(Mine)
    assert algorithms.find(word) is Mine
    assert algorithms.find("sterling.algorithms.online.ppo") is ppo


def test_unimportable_user_algorithm_is_refused_for_seed_processes():
    made = type("Local", (Mine,), {})
    word = algorithms.reference_to(made)
    assert (word, algorithms.find(word)) == ("Local", made)
    settings = resolve_settings(made, "probe:both", steps=4_096)
    assert settings.to_json()["custom_algorithm"]
    with pytest.raises(
        Mistake, match=r"Other processes cannot import the algorithm Local\. Put it into"
    ):
        settings.algorithm.__reduce__()
    with pytest.raises(Mistake, match=r"used the algorithm 'Local', which is not stored"):
        Settings.from_json(settings.to_json())
    with pytest.raises(Mistake, match=r"Other processes cannot import the algorithm Local"):
        sterling.train(made, "probe:both", steps=4_096, seeds=2, strategy="processes")
    again = Settings.from_json(settings.to_json(), algorithm=made)
    assert algorithms.find(again.algorithm) is made


def lacking(*parts):
    made = types.SimpleNamespace(**{n: v for n, v in vars(ppo).items() if n not in parts})
    return made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lacking("learn"), r"is not an algorithm: it lacks learn\(state, batch, key\)"),
        (type("A", (), {"lern": 1, **vars(lacking("learn"))}), r"did you mean lern\?"),
        (type("A", (Mine,), {"Config": dataclasses.make_dataclass("Config", [])}),
         r"Config must be decorated with sterling.types.config. Write @config"),
        (type("A", (Mine,), {"Config": type("Config", (ppo.Config,), {})}), "Write @config above"),
        (type("A", (Mine,), {"Config": config(type("C", (), {"__annotations__": {"x": int}}))}),
         r"Config\(\) raises TypeError.*Give every field a default"),
        (lacking(), "cannot be hashed"),
    ],
)  # fmt: skip
def test_object_that_is_no_algorithm_is_refused_in_one_line(made, said):
    with pytest.raises(Mistake, match=said) as found:
        algorithms.reference_to(made)
    assert "\n" not in str(found.value)


def test_user_algorithm_file_suggests_the_class_inside(written):
    (written / "boxed.py").write_text(
        "from sterling.algorithms.online import ppo\n"
        "class Mine:\n    Config, needs, init = ppo.Config, ppo.needs, ppo.init\n"
        "    act, learn = ppo.act, ppo.learn\n"
    )
    with pytest.raises(Mistake, match=r"did you mean .*boxed.py:Mine\?"):
        algorithms.find(f"{written}/boxed.py")
    assert algorithms.find(f"{written}/boxed.py:Mine").Config is ppo.Config


def test_user_algorithm_config_inherits_and_overrides_fields(written):
    made = user_imports.load(f"{written}/mine.py").Config
    real = {each.name: each for each in dataclasses.fields(made)}
    assert list(real)[: len(dataclasses.fields(ppo.Config))] == [
        each.name for each in dataclasses.fields(ppo.Config)
    ]
    assert (made().width, made().length, made().limit, made().lr) == (8, 16, 0.5, 3e-4)
    assert (real["width"].type, real["limit"].type) == ("int | tuple[int, ...]", "float")
    leaves = jax.tree.leaves(made())
    assert len(leaves) == len(jax.tree.leaves(ppo.Config())) + 1


def test_command_line_parses_an_inherited_config_without_import(written):
    word = f"{written}/mine.py"
    about, found = algorithm_options.config_fields(word)
    real = dataclasses.fields(user_imports.load(word).Config)
    assert [(f.name, f.kind) for f in found] == [(f.name, f.type) for f in real]
    assert about == "PPO's settings and one more."
    by_name = {field.name: field for field in found}
    assert (by_name["width"].default, by_name["width"].comment) == ("8", "units, fewer")
    assert (by_name["lr"].default, by_name["lr"].comment) == (
        "3e-4",
        "Adam's initial step size",
    )
    words = ["train", word, "maze.py:make", "--steps", "9", "--limit", "0.25", "--no-anneal"]
    assert train.config_values(parse_command_line(words)) == {"limit": 0.25, "anneal": False}
    first = ["train", "--quiet", word, "maze.py:make", "--steps", "9", "--width=4"]
    assert train.config_values(parse_command_line(first)) == {"width": 4}
    assert (
        algorithm_options.find_algorithm(_parser(), ["--environment", "maze.py:make", word]) == word
    )


def _parser():
    from sterling.cli_options import Parser

    parser = Parser(prog="sterling train")
    train.add_options(parser)
    return parser


@pytest.mark.parametrize(
    "text",
    [
        "import sterling.algorithms.online.ppo as base\n@config\nclass Config(base.Config):\n",
        "import sterling.algorithms.online.ppo\n@config\n"
        "class Config(sterling.algorithms.online.ppo.Config):\n",
        "from sterling.algorithms.online.ppo import Config as Base\n@config\nclass Config(Base):\n",
        "from sterling.algorithms.online.ppo import Config as Base\n@config\nclass Middle(Base):\n"
        "    other: int = 3  # in between\n@config\nclass Config(Middle):\n",
    ],
)
def test_command_line_follows_config_base_classes_through_any_import(text, tmp_path):
    file = tmp_path / "inheriting.py"
    file.write_text(f"from sterling.types import config\n{text}    mine: float = 1.0  # my own\n")
    _, found = algorithm_options.config_fields(str(file))
    names = [each.name for each in dataclasses.fields(ppo.Config)]
    assert [each.name for each in found][: len(names)] == names
    assert (found[-1].name, found[-1].comment) == ("mine", "my own")


def test_user_algorithm_config_field_ranges_are_enforced(written):
    word = f"{written}/mine.py"
    asked = {"steps": 4_096}
    assert resolve_settings(word, "probe:both", fields={"limit": 0.1}, **asked).config.limit == 0.1
    with pytest.raises(Mistake, match="mine's field lr must be 0 or more; got -1"):
        resolve_settings(word, "probe:both", fields={"lr": -1.0}, **asked)
    with pytest.raises(Mistake, match="mine's field limit must be a finite number; got nan"):
        resolve_settings(word, "probe:both", fields={"limit": float("nan")}, **asked)


OWN_TYPES = """
from typing import Annotated
from sterling.algorithms.online import ppo
from sterling.algorithms.user_algorithm import require_algorithm
from sterling.algorithms.online.ppo import act, init, learn, needs
from sterling.field_types import OneOf, Share, Within
from sterling.types import config
Cost = Annotated[float, Within(0.0, 25.0)]
@config
class Config(ppo.Config):
    cost: Cost = 5.0  # limit per episode
    rate: Annotated[float, Within(0.0, 2.0, above=True)] | None = None  # of its change
    way: Annotated[str, OneOf(("soft", "hard"))] = "soft"  # how it is held
    width: int = 3  # whose rule stays that of PPO
    gamma: Annotated[float, Within(0.5, 1.0)] = 0.9  # a rule of its own
"""


@pytest.mark.parametrize("postponed", ["", "from __future__ import annotations\n"])
def test_user_algorithm_config_field_types_declare_allowed_values(postponed, tmp_path):
    file = tmp_path / f"own_types{len(postponed)}.py"
    file.write_text(postponed + OWN_TYPES)
    _, found = algorithm_options.config_fields(str(file))
    real = dataclasses.fields(user_imports.load(str(file)).Config)
    assert [(f.name, f.kind) for f in found] == [(f.name, f.type) for f in real]
    kinds = {field.name: field.kind for field in found}
    assert [kinds[name] for name in ("cost", "rate", "way")] == ["float", "float | None", "str"]
    wrong = {
        "cost": (26.0, "at most 25"),
        "rate": (0.0, "above 0 and at most 2"),
        "width": (0, "a whole number of at least 1, or a list of them such as 400,300"),
        "gamma": (0.4, "between 0.5 and 1"),
    }
    for name, (value, said) in wrong.items():
        with pytest.raises(Mistake, match=f"field {name} must be {said}; got {value}"):
            resolve_settings(str(file), "probe:both", steps=4_096, fields={name: value})
    with pytest.raises(Mistake, match=r"Unknown way='sof' of .*; did you mean soft\?"):
        resolve_settings(str(file), "probe:both", steps=4_096, fields={"way": "sof"})
    assert (
        resolve_settings(str(file), "probe:both", steps=4_096, fields={"rate": 1}).config.rate == 1
    )


@pytest.mark.slow
def test_user_algorithm_object_is_trained_and_must_be_given_again_on_load(tmp_path, capsys):
    made = type("Local", (Mine,), {})
    small = {"length": 8, "minibatch": 16, "width": 8, "epochs": 1, "evaluate_episodes": 1}
    run = sterling.train(made, "probe:both", steps=128, out=tmp_path / "run", **small)
    assert "Local (algorithm=...) cannot be imported" in capsys.readouterr().err
    assert run.result["algorithm"] == "Local"
    with pytest.raises(Mistake, match=r"sterling\.resume as algorithm="):
        sterling.load(tmp_path / "run")
    again = sterling.load(tmp_path / "run", algorithm=made)
    assert again.policy([1.0]) == run.policy([1.0])
    plain = resolve_settings("ppo", "probe:both", steps=4_096).to_json()
    with pytest.raises(Mistake, match=r"algorithm is stored as 'ppo'\. Leave algorithm out"):
        Settings.from_json(plain, algorithm=made)


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ((Feed("fresh"), Feed(batch=8)), "Feeds need different names"),
        ((Feed("replayed", batch=8),), "kind of feed 'replayed'. Use one of fresh, replay"),
        ((Feed("episodes"), Feed(name="b", batch=8)), "whole episodes must be the only feed"),
        ((Feed("episodes"),), r"lacks member\(state, key, env\)"),
        ((Feed("dream", batch=8),), r"lacks imagine\(state, rows, valid, key\)"),
    ],
)
def test_user_algorithm_with_invalid_feeds_is_refused(feeds, said):
    parts = {name: staticmethod(getattr(ppo, name)) for name in ("init", "act", "learn")}
    needs = staticmethod(lambda config: Needs(4, feeds))
    made = type(
        "Fed", (), {"Config": ppo.Config, "needs": needs, "learn_b": parts["learn"], **parts}
    )
    with pytest.raises(Mistake, match=said):
        require_algorithm(made, "mine")


@pytest.mark.parametrize("name", ["seeds", "out", "steps", "data", "env", "config", "quiet"])
def test_config_field_named_like_an_option_of_the_run_is_refused_in_one_line(
    name, tmp_path, capsys
):
    lines = [
        "from sterling.algorithms.online import ppo",
        "from sterling.algorithms.online.ppo import *",
        "from sterling.types import config",
        "@config",
        "class Config(ppo.Config):",
        f"    {name}: int = 1  # a clash",
    ]
    (tmp_path / "mine.py").write_text("\n".join(lines) + "\n")
    assert main(["train", f"{tmp_path}/mine.py", "probe:both", "--steps", "4_096"]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"sterling: The Config has a field '{name}', which is an option of the command. Rename the "
        "field.\n"
    )
    with pytest.raises(Mistake, match=f"field '{name}', which is an argument of every run"):
        sterling.train(f"{tmp_path}/mine.py", "probe:both", steps=4_096)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The file defines no class and no function."),
        ("def verify(task, answer): ...", "It has verify, but tasks need sample too (see docs/"),
        (
            "class Thing: ...\ndef make(): ...",
            "The file has Thing, make; what a function makes is checked as {path}:make.",
        ),
    ],
)
def test_file_without_an_algorithm_is_answered_with_what_it_has(text, said, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert main(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert "mine.py is not an algorithm: it lacks class Config. It needs Config, needs" in told
    assert said.format(path=path) in told
