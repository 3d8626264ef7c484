"""Datasets are of one agent: a world of several is refused in one line, whatever is asked for."""

import pytest

from sterling.cli import main
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.types import Mistake


@pytest.mark.parametrize("quality", ["random", "medium", "full-replay"])
@pytest.mark.parametrize("agent", ["ppo", "ippo"])
def test_make_dataset_refuses_multi_agent_environments(quality, agent, tmp_path):
    order = DatasetOrder("spread:2-agents-3x3", quality, 100, agent=agent, steps=10_000)
    with pytest.raises(Mistake, match=r"has 2 agents, but a dataset holds the rewards of one"):
        make_dataset(order, tmp_path / "data", tmp_path / "agents")
    assert not (tmp_path / "data").exists()


def test_data_make_command_refuses_multi_agent_environments_in_one_line(tmp_path, capsys):
    words = ["data", "make", "spread:2-agents-3x3", "--quality", "random", "--size", "100"]
    assert main([*words, "--out", str(tmp_path / "data")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "Name an environment with one agent" in said[0]
