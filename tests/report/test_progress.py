"""Progress where no terminal is: plain lines, and none for what never began."""

import io
import time

from rich.console import Console

from sterling.report.live import live_progress
from sterling.report.live.live_progress import Progress

ROW = {"step": 50, "steps": 100, "time/steps_per_second": 10.0, "data/return": [1.0, 3.0]}


def shown(console):
    return console.file.getvalue().splitlines()


def plain():
    return Console(file=io.StringIO(), width=200)


def test_progress_prints_a_title_before_the_first_row():
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    sink.write(ROW)
    sink.write(ROW)  # in the same tenth
    sink.close()
    title, line = shown(console)
    assert title == f"PPO on a world: {live_progress.WAITING_TEXT}"
    assert line.split("  ")[:3] == [" 50%", "50/100 steps", "10 steps/s"]
    assert "return 2" in line


def test_progress_prints_the_latest_evaluation_beside_the_returns_of_training():
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    sink.write(ROW | {"step": 50})
    sink.write(ROW | {"step": 55, "evaluation/return": [7.0, 9.0]})  # in the same tenth
    sink.write(ROW | {"step": 60})
    sink.write(ROW | {"step": 70, "evaluation/return": [5.0, None], "failed": [1]})
    sink.close()
    _, before, after, failed = shown(console)
    assert "evaluated" not in before
    assert "return 2.00 " in after
    assert "  evaluated 8.00 " in after
    assert " at 55  " in after
    assert "  evaluated 5.000 (one run, no interval) at 70  " in failed


def test_progress_of_slow_runs_prints_rate_and_time_left():
    console = plain()
    sink = Progress(2, 2, "GRPO on a world", console)
    slow = {"step": 0, "update": 1, "updates": 2, "time/updates_per_second": 0.017}
    sink.write(slow)
    sink.close()
    line = shown(console)[1]
    assert "0.017 updates/s" in line
    assert "1:58 left" in line


def test_progress_time_left_uses_the_unit_of_the_speed():
    """After a log the world: updates lie behind and ahead, and steps are what takes time."""
    console = plain()
    sink = Progress(1000, 2, "IQL on a log", console)
    sink.write(ROW | {"update": 900, "updates": 1000, "steps": 650, "step": 50})
    sink.close()
    line = shown(console)[1]
    assert "900/1,000 updates" in line
    assert "2:00 left" in line  # 600 steps of two seeds at 10 a second


def test_progress_without_speed_prints_no_time_left():
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    sink.write(ROW | {"time/steps_per_second": 0.0})
    sink.close()
    assert "left" not in shown(console)[1]


def test_progress_closed_before_a_row_prints_nothing():
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    sink.close()
    sink.close()
    assert shown(console) == []


def test_a_long_compilation_is_announced(monkeypatch):
    monkeypatch.setattr(live_progress, "SILENT_SECONDS", 0.0)
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    until = time.monotonic() + 120
    while not shown(console) and time.monotonic() < until:
        time.sleep(0.01)
    sink.write(ROW)
    sink.close()
    title, _ = shown(console)
    assert title.startswith("PPO on a world: ")


def test_progress_return_interval_stays_within_bounds():
    console = plain()
    sink = Progress(100, 2, "GRPO on a world", console)
    sink.return_within = (0.0, 1.0)
    sink.write({**ROW, "data/return": [0.5, 0.8]})
    sink.close()
    assert "return 0.650 [0.000, 1.000]" in shown(console)[1]


def test_progress_names_the_mean_of_seeds_that_have_not_failed():
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    sink.write({**ROW, "failed": [1]})
    sink.close()
    assert "return of the other seeds 1.000" in shown(console)[1]
    assert "failed: seed 1" in shown(console)[1]


def test_progress_says_from_where_a_return_is_that_no_newer_one_replaced():
    console = plain()
    sink = Progress(1_000, 2, "IQL on a log", console)
    row = {"updates": 1_000, "steps": 0, "step": 0, "time/updates_per_second": 10.0}
    sink.write(row | {"update": 400, "evaluation/return": [1.0, 3.0]})
    sink.write(row | {"update": 1_000})
    sink.close()
    _, first, last = shown(console)
    assert "(of" not in first
    assert last.split("  ")[3].startswith("return 2")
    assert last.endswith(" (of update 400)")


def test_progress_says_from_where_returns_of_seeds_are_without_an_ended_episode():
    console = plain()
    sink = Progress(100, 2, "PPO on a world", console)
    sink.write(ROW | {"step": 20, "data/return": [1.0, None]})
    sink.write(ROW | {"step": 50, "data/return": [None, 3.0]})
    sink.write(ROW | {"step": 100, "data/return": [None, None]})
    sink.close()
    assert "(of step 20 to 50)" in shown(console)[-1]
    assert "(of" not in shown(console)[1]


def test_progress_of_texts_alone_shows_the_loss_on_held_out_rows_and_its_update():
    console, row = plain(), {"step": 0, "updates": 100, "time/updates_per_second": 10.0}
    sink = Progress(100, 2, "SFT on texts", console)
    sink.write(row | {"update": 50, "held_out/loss": [1.0, 3.0]})
    sink.write(row | {"update": 60})
    sink.close()
    first, second = shown(console)[1:]
    assert "held_out/loss 2" in first
    assert "held_out/loss 2" in second
    assert "(of update 50)" in second
