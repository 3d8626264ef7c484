"""What a user may say of hindsight, and where it is refused in one line."""

import json
import re

import pytest

import sterling
from sterling.cli_options import parse_command_line
from sterling.training.config.hindsight_option import parse_hindsight
from sterling.types import Mistake

SMALL = {"steps": 200, "preset": False, "width": 8, "depth": 1, "warmup": 50, "batch": 8}
SMALL |= {"evaluate_episodes": 2, "capacity": 1000}


def test_hindsight_option_parses_strategy_and_share():
    words = ("future", "final", "episode", "random", "future:0.5", "final:1")
    said = [parse_hindsight(word) for word in words]
    assert said[:4] == [(word, 0.8) for word in words[:4]]
    assert said[4:] == [("future", 0.5), ("final", 1.0)]


@pytest.mark.parametrize(
    "word", ["past", "future:", "future:0", "future:1.5", "future:nan", "future:much", "Future"]
)
def test_unknown_hindsight_option_is_refused(word):
    with pytest.raises(Mistake, match=re.escape(f"hindsight={word!r}")):
        sterling.train("dqn", "flip:3", hindsight=word, **SMALL)


@pytest.mark.parametrize(
    ("algorithm", "world", "words"),
    [
        ("ppo", "flip:3", "hindsight needs a replay buffer, and ppo has none"),
        ("dqn", "CartPole-v1", "function that judges goals, and CartPole-v1 has none"),
    ],
)
def test_hindsight_is_refused_without_replay_or_goals(algorithm, world, words):
    own = {} if algorithm == "ppo" else {k: x for k, x in SMALL.items() if k != "steps"}
    with pytest.raises(Mistake, match=words):
        sterling.train(algorithm, world, steps=20_000, hindsight="future", **own)


@pytest.mark.slow
def test_hindsight_option_is_stored_in_the_run_config(tmp_path):
    run = sterling.train("dqn", "flip:3", hindsight="final:0.5", out=tmp_path / "run", **SMALL)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["hindsight"] == "final:0.5"
    assert 0.0 <= run.result["final"]["success"]["estimate"] <= 1.0
    again = sterling.resume(tmp_path / "run", steps=300)
    assert again.result["final"]["success"]["n"] == 1


def test_train_and_tune_accept_the_hindsight_option():
    for command in ("train", "tune"):
        words = [command, "dqn", "flip:3", "--steps", "200", "--hindsight", "future:0.5"]
        assert parse_command_line(words).hindsight == "future:0.5"


@pytest.mark.slow
def test_hindsight_works_with_gymnasium_compute_reward():
    from test_goals import Judged

    options = {"workers": 0}
    run = sterling.train("dqn", Judged, hindsight="future", env_options=options, **SMALL)
    assert run.result["final"]["return"]["n"] == 1
