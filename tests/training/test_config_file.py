"""Files of settings: what they may hold, what is refused, and a run's own makes it again."""

import json
import math

import pytest

import sterling
from sterling.cli import main
from sterling.system.settings_file import read_settings_file, to_yaml
from sterling.training import api
from sterling.training.config.config_file import config_yaml, read_config_file
from sterling.training.config.run_arguments import train_arguments
from sterling.types import Mistake

PPO = """\
algorithm: ppo
environment: CartPole-v1
steps: 1_28
seeds: [3]
envs: 2
config: {length: 32, minibatch: 32, epochs: 1, width: 8, lr: 3e-4}
evaluate-episodes: 1
preset: false
quiet: true
"""
FACTS = ("time", "git", "versions", "hardware")


def write(folder, text, name="run.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def stored(folder):
    return {name: value for name, value in json.loads((folder / "config.json").read_text()).items()
            if name not in FACTS}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4), ("1_000_000", 1_000_000), ("1e6", 1_000_000), ("2.5e-3", 2.5e-3),
        ("inf", math.inf), ("-.inf", -math.inf), ("0-3", "0-3"), ("1:30", "1:30"), ("3,7", "3,7"),
        ("010", 10), ("true", True), ("null", None), ("info", "info"), ("'3e-4'", "3e-4"),
        ("-5", -5), (".5", 0.5), ("1.", 1.0), ("data/1e6", "data/1e6"),
    ],
)  # fmt: skip
def test_yaml_scientific_notation_is_read_as_a_number(text, value, tmp_path):
    found = read_settings_file(write(tmp_path, f"x: {text}\n"))["x"]
    assert (found, type(found)) == (value, type(value))


def test_yaml_settings_file_round_trips(tmp_path):
    content = {"a": 1e-5, "b": math.inf, "c": [0, 1], "d": {"e": None, "f": "3e-4", "g": True}}
    assert read_settings_file(write(tmp_path, to_yaml(content))) == content


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "lr: 1\nlr: 2\n", r"a.yaml: lr is given twice"),
        ("a.json", '{"lr": 1, "lr": 2}', r"a.json: lr is given twice"),
        ("a.yaml", "lr: [1\n", r"a.yaml cannot be read"),
        ("a.toml", "lr = ", r"a.toml cannot be read"),
        ("a.json", "{", r"a.json cannot be read"),
        ("a.yaml", "- 1\n", r"a.yaml must hold names and values"),
        ("a.yaml", "x: !!python/object:os.system {}\n", "a.yaml cannot be read"),
        ("a.txt", "lr: 1", r"Name it .yaml, .json or .toml"),
        ("a.yaml", "config: 3\n", "config must be an object of fields"),
        ("a.yaml", "lr: 1\nconfig: {lr: 2}\n", "lr is given twice"),
        ("a.yaml", "guide: {path: a, hwo: b}\n", "a.yaml: a value cannot be used"),
        ("a.yaml", "seeds: 1,x\n", "a.yaml: a value cannot be used"),
        ("a.yaml", "custom_environment: true\n", "used an object that is not stored"),
    ],
)
def test_invalid_config_file_is_refused(name, text, said, tmp_path):
    with pytest.raises(Mistake, match=said):
        read_config_file(write(tmp_path, text, name))


def test_config_file_accepts_command_line_spellings_of_values(tmp_path):
    text = "seeds: 3,7\nreturn_within: 0,\nlevels: 2\nenv: [max_episode_steps=5, flag=true]\n"
    assert read_config_file(write(tmp_path, text)) == {
        **{"seeds": [3, 7], "return_within": (0.0, None), "levels": "2"},
        "env_options": {"max_episode_steps": 5, "flag": True},
    }


def test_missing_config_file_is_named(tmp_path, capsys):
    assert main(["train", "--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml cannot be read (No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("lrr: 3", r"run.yaml: unknown key 'lrr'; did you mean lr?"),
        ("learning_rate: 3", r"run.yaml: unknown key 'learning_rate': it is called lr here"),
        ("total-timesteps: 3", "unknown key 'total_timesteps': it is called steps here"),
        ("evaluate_episode: 3", "unknown key 'evaluate_episode'; did you mean evaluate_episodes?"),
        ("max_episode_step: 3", "unknown key 'max_episode_step'; did you mean max_episode_steps?"),
        ("banana: 3", "unknown key 'banana'"),
        ("lrr: 3\nwdth: 9", "unknown key 'lrr'; did you mean lr?; unknown key 'wdth'"),
    ],
)
def test_an_unknown_key_is_named_with_the_file(more, said, tmp_path, capsys):
    assert main(["train", "--config", str(write(tmp_path, PPO + more + "\n"))]) == 2
    err = capsys.readouterr().err
    assert err.startswith("sterling: ")
    assert len(err.splitlines()) == 1
    assert said in err
    with pytest.raises(Mistake, match="unknown key"):
        sterling.train(config=tmp_path / "run.yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    file = write(folder, PPO + "env: {max_episode_steps: 30}\n")
    assert main(["train", "--config", str(file), "--lr", "1e-3", "--out", str(folder / "a")]) == 0
    return folder / "a"


def test_command_line_options_override_the_config_file(run):
    found = stored(run)
    assert (found["config"]["lr"], found["config"]["length"]) == (1e-3, 32)
    assert (found["steps"], found["seeds"], found["envs"]) == (128, [3], 2)
    assert found["env_options"] == {"max_episode_steps": 30}


@pytest.mark.slow
def test_env_options_override_the_config_file_key_by_key(run, tmp_path):
    file = write(tmp_path, PPO + "env: {max_episode_steps: 30, stack: 2}\n")
    made = sterling.train(config=file, env={"max_episode_steps": 9}, steps=256, seeds=2)
    assert made.settings.env_options == {"max_episode_steps": 9, "stack": 2}
    assert (made.settings.steps, made.settings.seeds) == (256, (0, 1))


def test_environment_can_be_given_beside_the_config_file(tmp_path, capsys):
    file = write(tmp_path, PPO)
    out = ["--steps", "1", "--out", str(tmp_path / "x")]
    for words in (
        ["probe:constant"],
        ["ppo", "probe:constant"],
        ["--environment", "probe:constant"],
    ):
        assert main(["train", *words, "--config", str(file), *out]) == 2
        assert "--steps 1 is below one iteration of ppo" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_config_file_of_a_run_reproduces_the_run(run, suffix, tmp_path, capsys):
    capsys.readouterr()
    if suffix == "yaml":
        assert main(["show", str(run), "--config"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("# sterling train --config FILE makes this run again (sterling ")
    elif suffix == "json":
        text = (run / "config.json").read_text()
    else:
        own = stored(run)["config"]
        plain = {name: "none" if value is None else value for name, value in own.items()}
        fields = "\n".join(f"{name} = {json.dumps(value)}" for name, value in plain.items())
        text = (
            "algorithm = 'ppo'\nenvironment = 'CartPole-v1'\nsteps = 1_28\nseeds = [3]\nenvs = 2\n"
        )
        text += "preset = false\nevaluate_episodes = 1\nmax_episode_steps = 30\n[config]\n" + fields
    file = write(tmp_path, text, f"again.{suffix}")
    assert main(["train", "--config", str(file), "--out", str(tmp_path / "b"), "--quiet"]) == 0
    assert stored(tmp_path / "b") == stored(run)
    results = [json.loads((folder / "result.json").read_text()) for folder in (run, tmp_path / "b")]
    assert results[0]["final"] == results[1]["final"]


@pytest.mark.slow
def test_config_file_of_a_run_with_dataset_phases_and_guide_reproduces_settings(
    run, tmp_path, capsys
):
    log = tmp_path / "log"
    assert (
        main(
            [
                "data",
                "make",
                "CartPole-v1",
                "--quality",
                "random",
                "--size",
                "200",
                "--out",
                str(log),
            ]
        )
        == 0
    )
    small = ["--batch", "8", "--width", "8", "--evaluate-episodes", "1", "--quiet"]
    first = ["train", "sac", str(log), "--updates", "4", "--steps", "40", "--warmup", "8", "--top",
             "0.5", "--share", "0.25", "--online", "lr=0.01", "--then", "steps=20 lr=1e-4",
             "--return-within", "0,", "--failed", "worst", "--seeds", "1"]  # fmt: skip
    assert main([*first, *small, "--out", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    assert main(["show", str(tmp_path / "a"), "--config"]) == 0
    file = write(tmp_path, capsys.readouterr().out)
    assert main(["train", "--config", str(file), "--quiet", "--out", str(tmp_path / "b")]) == 0
    assert stored(tmp_path / "b") == stored(tmp_path / "a")
    assert stored(tmp_path / "a")["phases"][0]["fields"] == {"lr": 1e-4}


@pytest.mark.slow
def test_config_file_of_a_language_run_reproduces_its_settings(one_layer, tmp_path, capsys):
    words = ["train", "sft", "reverse-text", "--model", "nano", "--updates", "2", "--batch", "4",
             "--examples", "8", "--limit", "8", "--evaluate-episodes", "2", "--quiet"]  # fmt: skip
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    assert main(["show", str(tmp_path / "a"), "--config"]) == 0
    file = write(tmp_path, capsys.readouterr().out)
    assert main(["train", "--config", str(file), "--quiet", "--out", str(tmp_path / "b")]) == 0
    assert stored(tmp_path / "b") == stored(tmp_path / "a")


def test_show_config_refuses_other_show_options(run, capsys):
    assert main(["show", str(run), "--config", "--worst", "1"]) == 2
    assert "Give one of them" in capsys.readouterr().err
    assert main(["show", "/nowhere", "--config"]) == 2


@pytest.mark.slow
def test_show_config_refuses_a_run_made_from_a_python_object(tmp_path, capsys):
    import gymnasium

    sterling.train("ppo", lambda: gymnasium.make("CartPole-v1"), steps=128, envs=2, length=32,
                   minibatch=32, epochs=1, width=8, evaluate_episodes=0, out=tmp_path / "a",
                   env={"workers": 0})  # fmt: skip
    assert main(["show", str(tmp_path / "a"), "--config"]) == 2
    assert "used an object that is not stored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        {"algorithm": "ppo", "environment": "Breakout-MinAtar", "steps": 100_000, "preset": False},
        {"algorithm": "ppo", "environment": "Breakout-MinAtar", "steps": 100_000},
        {"algorithm": "ppo", "environment": "CartPole-v1", "steps": 9_000, "envs": 2, "seeds": [7]},
        {"algorithm": "sac", "environment": "flip:8", "steps": 20_000, "hindsight": "future:0.5"},
        {"algorithm": "ppo", "environment": "maze:4x4", "steps": 20_000, "sources": "plr"},
        {"algorithm": "dqn", "environment": "CartPole-v1", "steps": 90_000, "strategy": "vmap",
         "huber": float("inf"), "return_within": (0, None), "failed": "worst"},
        {"algorithm": "sac", "environment": "Pendulum-v1", "steps": 20_000, "evaluate_every": 500,
         "guide": "runs/earlier", "guide_steps": 50, "log_every": 400, "checkpoint_minutes": 1.5},
    ],
)  # fmt: skip
def test_settings_round_trip_through_yaml_and_json_config_files(given, tmp_path):
    """Without training: presets, options of the environment and every kind of option."""
    settings = api.settings_from_arguments(train_arguments(None, given))
    plain = json.loads(json.dumps(settings.to_json() | {"versions": {"sterling": "?"}}))
    written = write(tmp_path, config_yaml(plain, "here"))
    recorded = write(tmp_path, json.dumps(plain), "config.json")
    for file in (written, recorded):
        assert api.settings_from_arguments(train_arguments(file, {})) == settings
