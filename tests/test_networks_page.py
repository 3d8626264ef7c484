"""The example of docs/networks.md works as it stands; its commands and its table are true."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms import find
from sterling.cli import main
from sterling.cli_options import parse_command_line
from sterling.nets.encoding.encoder_choice import PRESETS
from sterling.problem.picture_layout import picture_layout
from sterling.training.fields.config_fields import make_config
from sterling.tuning.search_space import parse_ranges, read_space

PAGE = (Path(__file__).parents[1] / "docs" / "networks.md").read_text()


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", [0, 1], ids=["sequence", "graph"])
def test_networks_page_padded_observation_files_train(number, tmp_path, monkeypatch, capsys):
    file = ("my_env.py", "my_graph.py")[number]
    (line,) = re.findall(rf"^(sterling .*{file}.*)$", PAGE, re.MULTILINE)
    reading = re.findall(r"^(observations: .* -> attention.*)$", PAGE, re.MULTILINE)[number]
    (tmp_path / file).write_text(BLOCKS[number])
    monkeypatch.chdir(tmp_path)
    small = ["--steps", "256", "--length", "32", "--minibatch", "32", "--evaluate-episodes", "1"]
    assert main([*shlex.split(line)[1:], *small]) == 0
    assert reading in capsys.readouterr().out


@pytest.mark.slow
def test_networks_page_example_trains_with_its_own_encoder():
    _, _, code = BLOCKS
    found: dict = {"__name__": "networks_page"}
    exec(compile(code, "networks.md", "exec"), found)
    nets = found["run"].agent.state.nets
    assert nets.torso.size == 4 + 16
    assert [layer.weight.shape[1:] for layer in nets.policy.layers] == [(20, 32), (32, 16), (16, 2)]


def test_networks_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 8
    asked = [parse_command_line(shlex.split(line)[1:]) for line in lines]
    assert asked[0].width == (400, 300)
    assert asked[0].layer_norm
    assert asked[1].width == 256
    assert [each.encoder for each in asked[2:4]] == ["impala", "my_nets.py:make"]
    assert asked[4].memory == "lru"
    space = read_space("ppo", parse_ranges(asked[5].space))
    assert [each.options for each in space] == [(64, (400, 300)), ("tanh", "silu")]


ROWS = re.findall(r"^\| `(\(.*?\))` (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS)
def test_networks_page_table_matches_image_recognition(row):
    assert len(ROWS) == 8
    shape, numbers, read = row
    low, high, kind = {"uint8": (0, 255, np.uint8), "floats in 0..1": (0.0, 1.0, np.float32)}.get(
        numbers, (-np.inf, np.inf, np.float32)
    )
    sides = tuple(map(int, re.findall(r"\d+", shape)))
    layout = picture_layout(spaces.Box(low, high, sides, kind))
    vector = f"vector of {np.prod(sides):,}"
    assert read.split(", pointed")[0] == (f"picture {layout.sides_text}" if layout else vector)


def test_networks_page_names_every_encoder_preset_and_memory_unit():
    assert set(re.findall(r"^\| `([\w-]+)` \| ", PAGE, re.MULTILINE)) == set(PRESETS)
    for unit in ("gru", "lstm", "lru", "s5"):
        assert f"`{unit}`" in PAGE
        assert make_config(find("recurrent-ppo"), {"memory": unit}, "recurrent-ppo").memory == unit
