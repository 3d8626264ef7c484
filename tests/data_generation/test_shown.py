"""A training for data is seen, and that an interrupted one is lost is said."""

import pytest

from sterling.cli import main
from sterling.data_generation import expert_training
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.system import interrupts


def test_data_make_training_reports_metrics_and_its_interruption(tmp_path):
    rows = []

    class Watching:
        def write(self, row):
            rows.append(row)
            if len(rows) == 3:
                raise KeyboardInterrupt

        def close(self):
            rows.append("closed")

    order = DatasetOrder("CartPole-v1", "medium", 3000, steps=2_000)
    with pytest.raises(KeyboardInterrupt):
        make_dataset(order, tmp_path / "out", tmp_path / "kept", watch=lambda settings: Watching())
    assert rows[-1] == "closed"
    assert [row["step"] for row in rows[:3]] == sorted({row["step"] for row in rows[:3]})
    assert all(0 < row["steps"] <= 2_000 and row["time/steps_per_second"] > 0 for row in rows[:3])
    assert any(0 < (row["data/return"][0] or 0) <= 500 for row in rows[:3])
    assert interrupts._messages.pop() == expert_training.STOPPED_MESSAGE
    interrupts._messages[:] = ["stopped"]
    assert not list(tmp_path.iterdir())


def test_data_make_command_shows_training_progress_on_stderr(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "data make CartPole-v1 --quality expert --size 50 --steps 600 --out made"
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    assert "PPO on CartPole-v1, to generate data: compiling" in err
    assert "100%" in err
    assert "PPO" not in out.splitlines()[0]
