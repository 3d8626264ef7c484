"""Layer sizes and encoders of a run: given, stored, opened again, refused."""

from __future__ import annotations

import io
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from rich.console import Console

import sterling
from sterling.cli import main
from sterling.commands.options import option_values
from sterling.report.live.live_progress import Progress
from sterling.training.config.resolve_settings import resolve_settings
from sterling.types import Mistake

SMALL = {"length": 16, "minibatch": 64, "epochs": 1, "envs": 8, "evaluate_episodes": 2}
NETS = """
import equinox as eqx
import jax


class Encoder(eqx.Module):
    weight: jax.Array

    def __call__(self, obs):
        return obs @ self.weight


def make(key, space):
    return Encoder(jax.random.normal(key, (space.shape[0], 5)))
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run with layers of two sizes and an encoder from a file."""
    folder = tmp_path_factory.mktemp("networks")
    (folder / "stored_nets.py").write_text(NETS)
    encoder = f"{folder}/stored_nets.py:make"
    sterling.train(
        "ppo", "probe:both", steps=256, out=folder / "run", encoder=encoder, width=[12, 7],
        layer_norm=True, activation="silu", **SMALL,
    )  # fmt: skip
    return folder / "run"


@pytest.mark.slow
def test_run_folder_stores_layer_sizes_and_encoder(stored):
    plain = json.loads((stored / "config.json").read_text())
    assert plain["config"]["width"] == [12, 7]
    assert plain["encoder"].endswith("/stored_nets.py:make")
    assert list(plain["code"]) == [plain["encoder"].removesuffix(":make")]
    assert plain["observations"] == ["observations: vector of 1 -> stored_nets:make (5 features)"]
    run = sterling.load(stored)
    nets = run.agent.state.nets
    shapes = [layer.weight.shape[1:] for layer in nets.policy.layers]
    assert shapes == [(5, 12), (12, 7), (7, 2)]
    assert [norm.scale.shape[1:] for norm in nets.value.norms] == [(12,), (7,)]
    assert run.settings.config.width == (12, 7)
    assert run.evaluate(2)["return"] == run.result["final"]["return"]


def test_run_with_own_encoder_is_extended(stored, tmp_path):
    """Also the run of an encoder's own: its arrays are trained and restored."""
    folder = shutil.copytree(stored, tmp_path / "run")
    before = sterling.load(folder).agent.state.nets.torso.own.arrays.weight
    after = sterling.resume(folder, steps=512).agent.state.nets.torso.own.arrays.weight
    assert before.shape == (1, 1, 5)
    assert np.abs(np.asarray(after - before)).max() > 1e-5


@pytest.mark.slow
def test_run_folder_without_network_settings_still_loads(stored, tmp_path):
    """Without the fields and settings that came with this page."""
    sterling.train("ppo", "probe:both", steps=256, out=tmp_path / "run", width=12, **SMALL)
    path = tmp_path / "run" / "config.json"
    plain = json.loads(path.read_text())
    del plain["encoder"], plain["observations"], plain["config"]["layer_norm"]
    path.write_text(json.dumps(plain))
    run = sterling.load(tmp_path / "run")
    assert run.settings.config.width == 12
    assert run.settings.encoder == ""
    assert run.evaluate(2)["return"] == run.result["final"]["return"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"width": (400, 300), "depth": 2}, "width=400,300 already says that there are 2 hidden"),
        ({"width": (400, 0)}, "width must be a whole number of at least 1, or a list of them such"),
        ({"width": ()}, "or a list of them such as 400,300; got ()"),
        ({"width": 2.5}, "field width must be a whole number of at least 1"),
        ({"width": "400,300"}, "or a list of them such as 400,300; got '400,300'"),
        ({"width": True}, "field width must be a whole number"),
    ],
)
def test_invalid_layer_sizes_are_refused(fields, said):
    with pytest.raises(Mistake) as raised:
        resolve_settings("ppo", "probe:both", steps=4096, fields=fields)
    assert said in str(raised.value)


def test_one_width_number_is_combined_with_depth():
    plain = resolve_settings("sac", "probe:both", steps=20_000, fields={"width": 8, "depth": 3})
    assert (plain.config.width, plain.config.depth) == (8, 3)
    listed = resolve_settings("sac", "probe:both", steps=20_000, fields={"width": [8]})
    assert listed.config.width == (8,)
    models = {"model_width": (4, 3), "model_depth": 2}
    with pytest.raises(Mistake, match="Leave out model_depth"):
        resolve_settings("mbpo", "Pendulum-v1", steps=20_000, fields=models)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train ppo CartPole-v1 --steps 4096 --width 400,x", "'x' is not a number"),
        ("train ppo CartPole-v1 --steps 4096 --width 64,64 --depth 2", "Leave out depth"),
        ("train ppo CartPole-v1 --steps 4096 --encoder natur", "did you mean nature?"),
        ("train ppo CartPole-v1 --steps 4096 --encoder nature", "encoder nature needs a picture"),
        ("train recurrent-ppo CartPole-v1 --steps 4096 --memory lstn", "did you mean lstm?"),
        ("train grpo reverse-text --updates 2 --encoder flat", "Leave out encoder"),
    ],
)
def test_invalid_network_options_are_refused_in_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main(words.split()))
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_an_encoder_that_cannot_be_stored_is_refused_with_a_run_folder(tmp_path):
    with pytest.raises(Mistake, match="Put it into a file and name that"):
        sterling.train(
            "ppo", "probe:both", steps=256, out=tmp_path / "run", encoder=lambda key, space: None,
            **SMALL,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


class Log:
    """A task in which a vector of many numbers is seen; every episode has one step."""

    obs = spaces.Box(-1.0, 1.0, (105 * 104,), np.float32)
    action = spaces.Discrete(2)

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(105 * 104)

    def step(self, state, action, key):
        end, cut = jnp.ones((), bool), jnp.zeros((), bool)
        return state, jnp.zeros(105 * 104), jnp.ones(()), end, cut


def shown(environment, **options):
    """The first lines that a run shows."""
    text = io.StringIO()
    progress = Progress(256, 1, "PPO", Console(file=text, width=300))
    how = {**SMALL, "quiet": True, **options}
    sterling.train("ppo", environment, steps=256, sinks=[progress], width=4, **how)
    return [line for line in text.getvalue().splitlines() if "observations" in line]


@pytest.mark.slow
def test_progress_prints_how_observations_are_encoded(capsys):
    assert shown("probe:both") == ["observations: vector of 1 -> MLP"]
    lines = shown(Log(), evaluate_episodes=0)
    assert lines[0] == "observations: vector of 10,920 -> MLP"
    assert lines[1].startswith("note: observations: 10,920 numbers of shape (10920,) are read as")
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_quiet_training_in_python_prints_only_the_encoder_note(capsys):
    how = {**SMALL, "evaluate_episodes": 0, "quiet": True}
    sterling.train("ppo", Log(), steps=256, width=4, **how)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("note: observations: 10,920 numbers of shape (10920,)")


@pytest.mark.parametrize("text", ["64,32", "[64, 32]", "(64, 32)", " [64,32] "])
def test_layer_sizes_and_seeds_are_read_as_lists_with_and_without_brackets(text):
    assert option_values.layer_sizes(text) == (64, 32)
    assert option_values.seeds(text) == [64, 32]
    assert (option_values.layer_sizes("256"), option_values.layer_sizes("[256]")) == (256, (256,))
    assert (option_values.seeds("3"), option_values.seeds("3,")) == (3, [3])
