"""Episodes of the last evaluation: what is kept, played again, shown, filmed and written."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.cli import main
from sterling.report.episodes import episodes_file
from sterling.report.episodes.episode_text import action_counts, end_text, sparkline
from sterling.report.episodes.episodes_file import (
    EpisodeSteps,
    EvaluatedEpisodes,
    choose_episodes,
    merge_episodes,
    read_episodes,
    write_episodes,
)
from sterling.training.evaluation.episode_replay import replay_episodes
from sterling.types import Mistake

SMALL = {"steps": 256, "seeds": 2, "envs": 4, "length": 32, "minibatch": 64, "epochs": 1,
         "width": 8, "evaluate_episodes": 6}  # fmt: skip


class Walk(gymnasium.Env):
    """Ends by itself at 3 steps for even numbers of episodes, else at its time limit of 5."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode, self.number = render_mode, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-1, 1)), 0
        self.number += 1
        return self.obs(), {}

    def obs(self):
        return np.array([self.x, self.t], np.float32)

    def step(self, action):
        self.x, self.t = self.x + 0.5 * action, self.t + 1
        over = self.number % 2 == 0 and self.t >= 3
        return self.obs(), self.x, over, self.t >= 5, {"cost": 2.0}

    def render(self):
        return np.full((32, 32, 3), 40 * self.t, np.uint8)


class Reader:
    """A sink that reads the file of episodes with every row that has an evaluation."""

    def __init__(self, folder):
        self.folder, self.seen = folder, []

    def write(self, row):
        if "evaluation/return" in row:
            self.seen.append((row, read_episodes(self.folder)))

    def close(self):
        pass


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return Reader(tmp_path_factory.mktemp("traced") / "run")


@pytest.fixture(scope="module")
def traced(reader):
    how = SMALL | {"evaluate_every": 128}
    return sterling.train("ppo", "CartPole-v1", out=reader.folder, sinks=[reader], **how)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosted") / "run"
    options = {"workers": 0, "channels": "cost:sum:less"}
    return sterling.train("ppo", Walk, out=folder, **SMALL, env_options=options)


def some(returns, seeds=(0, 1), envs=2, **facts):
    values = np.array(returns, np.float32)
    known = {"seeds": list(seeds), "envs": envs, "final": True, "failed_seeds": [], "step": 1}
    columns = {"return": values, "length": np.full(values.shape, 5), "ended": values > -1}
    return EvaluatedEpisodes(known | {"update": None, "environment": "x"} | facts, columns)


def steps_of(count, obs=0):
    seen = {"": np.zeros((count, obs), np.float32)} if obs else {}
    return EpisodeSteps(np.zeros(count, int), np.ones(count), np.ones(count), seen)


def test_end_of_an_episode_without_recorded_steps_is_not_called_its_own():
    made = some([[1.0, 2.0], [-1.0, -2.0]])
    assert end_text(made, (0, 0)) == "terminated or cut by its time limit: steps not recorded"
    assert end_text(made, (1, 1)) == "had not ended: cut at the evaluation's limit"
    recorded = dataclasses.replace(made, steps={(0, 0): steps_of(5), (0, 1): steps_of(4)})
    assert end_text(recorded, (0, 0)) == "cut by its time limit"
    assert end_text(recorded, (0, 1)) == end_text(made, (0, 0))  # its last step is missing


@pytest.mark.slow
def test_compiled_run_stores_evaluation_episodes(traced):
    kept = read_episodes(traced.path)
    assert kept.columns["return"].shape == (2, 6)
    assert not kept.steps  # no step is recorded in the compiled evaluation
    means = kept.columns["return"].mean(1)
    assert means.tolist() == traced.result["final"]["return"]["per_seed"]
    apart = sterling.train("ppo", "CartPole-v1", **SMALL)  # no folder: nothing is kept
    assert apart.result["final"] == traced.result["final"]


def test_training_run_stores_the_episodes_of_its_latest_evaluation(traced, reader):
    ((row, kept),) = reader.seen
    assert not kept.facts["final"]
    assert kept.facts["step"] == row["step"] == 128
    assert kept.columns["return"].mean(1).tolist() == row["evaluation/return"]
    assert read_episodes(traced.path).facts["final"]


def test_stored_episodes_are_replayed_step_by_step(traced):
    kept = read_episodes(traced.path)
    wanted = [(0, 5), (1, 2)]
    again, other = replay_episodes(traced, kept, wanted)
    assert not other
    assert set(again.steps) == set(wanted)
    for which, steps in again.steps.items():
        assert steps.reward.sum() == kept.value("return", which)
        assert len(steps.action) == kept.value("length", which)
        assert end_text(again, which) == "terminated"
        assert np.abs(steps.obs[""][0]).max() <= 0.05  # CartPole's first observation


def test_replayed_episode_with_another_return_is_reported(traced):
    kept = read_episodes(traced.path)
    columns = kept.columns | {"return": kept.columns["return"] + 1}
    changed = dataclasses.replace(kept, columns=columns)
    again, other = replay_episodes(traced, changed, [(0, 0)])
    assert other == [(0, 0)]
    assert not again.steps


def test_host_environment_run_records_worst_and_best_episodes(hosted):
    kept = read_episodes(hosted.path)
    assert {(0, n) for n in range(6)} == {which for which in kept.steps if which[0] == 0}
    assert kept.channels == ["cost"]
    for which, steps in kept.steps.items():
        assert steps.reward.sum() == pytest.approx(kept.value("return", which), rel=1e-5)
        assert steps.channels["cost"].sum() == kept.value("cost", which)
        assert np.array_equal(steps.obs[""][:, 1], np.arange(len(steps.reward)))
    ends = {end_text(kept, which) for which in kept.steps}
    assert ends <= {"terminated", "cut by its time limit"}
    assert kept.start_text((1, 3)).startswith("reset(seed=")


def test_choose_episodes_ignores_failed_seeds():
    made = some([[3, 1, 2], [0, 5, 1]])
    assert choose_episodes(made, 3) == [(1, 0), (0, 1), (1, 2)]
    assert choose_episodes(made, 2, best=True) == [(1, 1), (0, 0)]
    assert choose_episodes(made, 9, seed=0) == [(0, 1), (0, 2), (0, 0)]
    failed = some([[3, 1, 2], [0, 5, 1]], failed_seeds=[1])
    assert choose_episodes(failed, 1) == [(0, 1)]


def test_episodes_file_drops_extreme_episodes_last(monkeypatch, tmp_path):
    made = some([[float(n) for n in range(9)]], seeds=[0])
    every = {(0, n): steps_of(10, obs=20) for n in range(9)}
    whole, bare = every[0, 0].size, every[0, 0].without_obs().size
    monkeypatch.setattr(episodes_file, "MAX_BYTES", 4 * whole + 2 * bare)
    write_episodes(tmp_path, dataclasses.replace(made, steps=every))
    read = read_episodes(tmp_path)
    assert sum(each.size for each in read.steps.values()) <= 4 * whole + 2 * bare
    assert {(0, n) for n in (0, 1, 2, 6, 7, 8)} == set(read.steps)


def test_episodes_of_seed_processes_are_merged_in_seed_order():
    one = dataclasses.replace(some([[1], [3]], seeds=[0, 2]), steps={(2, 0): steps_of(2)})
    made = merge_episodes([one, some([[2]], seeds=[1], failed_seeds=[1])], [0, 1, 2])
    assert made.columns["return"][:, 0].tolist() == [1, 2, 3]
    assert made.facts["failed_seeds"] == [1]
    assert list(made.steps) == [(2, 0)]


def test_damaged_episodes_file_is_refused_in_one_line(tmp_path):
    write_episodes(tmp_path, some([[1]], seeds=[0]))
    path = tmp_path / "episodes.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(Mistake, match="damaged"):
        read_episodes(tmp_path)


def test_sparkline_and_action_counts_of_an_episode():
    assert sparkline(np.array([0.0, 1.0, 0.5])) == "▁█▅"
    assert len(sparkline(np.arange(1000.0), 60)) == 60
    assert action_counts(np.array([1, 0, 1])) == [("0", 1), ("1", 2)]


def test_show_prints_films_and_writes_a_page(hosted, tmp_path, capsys):
    run, page = str(hosted.path), tmp_path / "page.html"
    asked = ["show", run, "--worst", "2", "--seed", "1", "--page", str(page)]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    kept = read_episodes(hosted.path)
    worst = choose_episodes(kept, 2, seed=1)
    assert all(f"seed 1, episode {number}: return " in printed for _, number in worst)
    assert "cost" in printed
    assert "action 0" in printed
    text = page.read_text()
    assert "<polyline" in text
    assert "Worst 2" in text


@pytest.mark.slow
def test_show_films_the_episodes_in_the_world_of_the_evaluation(traced, tmp_path, capsys):
    assert main(["show", str(traced.path), "--worst", "1", "--film", str(tmp_path)]) == 0
    said = capsys.readouterr()
    (film,) = tmp_path.glob("seed-*-episode-*.mp4")
    assert str(film) in said.out
    assert "another episode" not in said.err
    import imageio.v2 as imageio

    seed, number = (int(part) for part in film.stem.split("-")[1::2])
    kept = read_episodes(traced.path)
    frames = sum(1 for _ in imageio.get_reader(film))
    assert frames == kept.value("length", (seed, number))
    assert (seed, number) in kept.steps  # what was played again is kept: the next look is free


def test_show_command_prints_the_run_overview(traced, capsys):
    assert main(["show", str(traced.path)]) == 0
    printed = capsys.readouterr().out
    assert "finished" in printed
    assert "final return" in printed
    lines = [line.split() for line in printed.splitlines()]
    assert ["width", "8", "64"] in lines
    assert ["gamma", "0.98", "0.99", "preset"] in lines
    assert not [line for line in lines if line[:1] == ["clip"]]  # a default


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--worst", "0"], "--worst must be at least 1"),
        (["--film", "films"], "Add --worst N or --best N"),
        (["--best", "1", "--seed", "7"], "no seed 7; it has 0, 1"),
        (["--best", "1", "--page", "page.txt"], "a page is an .html file"),
    ],
)
def test_show_command_refuses_wrong_options_in_one_line(traced, capsys, words, said):
    assert main(["show", str(traced.path), *words]) == 2
    assert said in capsys.readouterr().err


def test_show_command_of_a_run_without_evaluation(tmp_path, traced, capsys):
    (tmp_path / "config.json").write_text((traced.path / "config.json").read_text())
    assert main(["show", str(tmp_path), "--worst", "1"]) == 2
    assert "has no evaluation yet" in capsys.readouterr().err
    assert main(["show", str(tmp_path)]) == 0
    assert "stopped" in capsys.readouterr().out
