"""Any Gymnasium loop is recorded as its episodes end, whatever ends the program."""

import os
import signal
import subprocess
import sys
import textwrap

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sterling.data import Dataset, Recorder, check, import_table
from sterling.data.file_conversion import convert_files
from sterling.data.formats import recording
from sterling.data.recording import recording_folder
from sterling.types import Mistake


class Parts(gymnasium.Env):
    """Counts its steps in every kind of observation; ends after ``end``, or is cut after ``cut``.
    It returns the same arrays again and again, as fast environments do."""

    def __init__(self, end=3, cut=99):
        self.end, self.cut = end, cut
        self.observation_space = spaces.Dict({
            "picture": spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(9), spaces.Box(-9, 9, (2,), np.float32)]),
        })  # fmt: skip
        self.action_space = spaces.Dict(
            {"turn": spaces.Discrete(2), "push": spaces.Box(-2, 2, (1,), np.float32)}
        )
        self._picture, self._vector = np.zeros((4, 4, 3), np.uint8), np.zeros(2, np.float32)

    def _see(self):
        self._picture[:], self._vector[:] = self.at, -self.at
        return {"picture": self._picture, "pair": (self.at, self._vector)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self._see(), {}

    def step(self, action):
        self.at += 1
        return self._see(), 0.5 * self.at, self.at == self.end, self.at == self.cut, {}


def act(env, turn=1):
    return env.step({"turn": turn, "push": np.array([1.5], np.float32)})


class Spending(Parts):
    """Changes the action that it is given, as environments do that scale it in place."""

    def step(self, action):
        action["push"] *= 0.0
        return super().step(action)


def test_recorder_stores_the_action_as_it_was_before_the_step(tmp_path):
    with Recorder(Spending(), tmp_path / "a") as env:
        env.reset()
        for _ in range(3):
            act(env)
    assert Dataset(tmp_path / "a")[0].action["push"].tolist() == [[1.5]] * 3


def test_recorder_stores_dict_tuple_and_image_observations(tmp_path):
    with Recorder(Parts(), tmp_path / "a", environment="Parts-v0") as env:
        env.reset()
        for turn in (0, 1, 1):
            act(env, turn)
        assert env.episodes == 1
    data = Dataset(tmp_path / "a")
    one = data[0]
    assert one.obs["picture"][:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert one.obs["pair"][0].tolist() == [0, 1, 2, 3]
    assert one.obs["pair"][1][:, 1].tolist() == [0, -1, -2, -3]
    assert one.action["turn"].tolist() == [0, 1, 1]
    assert one.action["push"].tolist() == [[1.5]] * 3
    assert one.reward.tolist() == [0.5, 1.0, 1.5]
    assert one.discount.tolist() == [1, 1, 0]
    assert (data.facts.environment, one.source.format) == ("Parts-v0", "recorded")
    assert check(data) == []


def test_recorder_marks_time_limits_resets_and_exit_as_truncations(tmp_path):
    with Recorder(Parts(end=9, cut=2), tmp_path / "a") as env:
        env.reset()
        act(env)
        act(env)  # cut
        with pytest.raises(Mistake, match="call reset"):
            act(env)
        env.reset()
        act(env)
        env.reset()  # in the middle
        act(env)
        env.discard()
        env.reset()
        act(env)
    data = Dataset(tmp_path / "a")
    assert data.lengths.tolist() == [2, 1, 1]
    assert not data.ended.any()


def test_recorder_appends_to_recordings_and_datasets(tmp_path):
    def record(folder, episodes, **how):
        with Recorder(gymnasium.make("CartPole-v1"), folder, **how) as env:
            for seed in range(episodes):
                env.reset(seed=seed)
                while not any(env.step(1)[2:4]):
                    pass

    record(tmp_path / "a", 2, policy="first")
    record(tmp_path / "a", 1, policy="second")
    data = Dataset(tmp_path / "a")
    assert [one.source.name for one in data] == ["first", "first", "second"]
    convert_files([tmp_path / "a"], tmp_path / "b")
    assert Dataset(tmp_path / "b").hash == data.hash
    record(tmp_path / "b", 1)
    longer = Dataset(tmp_path / "b")
    assert len(longer) == 4
    np.testing.assert_array_equal(longer[3].obs, data[0].obs)
    with pytest.raises(Mistake, match="is a recording, which a Recorder appends to"):
        data.save(tmp_path / "b")
    with pytest.raises(Mistake, match="holds observations of Box"):
        Recorder(Parts(), tmp_path / "a")
    with pytest.raises(Mistake, match="episodes of CartPole-v1, not of Mine"):
        Recorder(gymnasium.make("CartPole-v1"), tmp_path / "a", environment="Mine")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "letter.txt").write_text("mine")
    with pytest.raises(Mistake, match="exists and is not a dataset"):
        Recorder(Parts(), tmp_path / "c")
    table = {"a": [0.0, 1.0, 2.0], "u": [0, 1, 0], "r": [0.0] * 3, "p": [0.5] * 3}
    how = {"obs": "a", "action": "u", "reward": "r", "one_episode": True}
    import_table(table, tmp_path / "d", **how, extra="p")
    env = Parts()
    env.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    env.action_space = spaces.Discrete(2)
    with pytest.raises(Mistake, match=r"cannot be appended to: it differs .* extra/p"):
        Recorder(env, tmp_path / "d")


def test_small_files_are_joined_and_the_dataset_stays_the_same(tmp_path, monkeypatch):
    hashes = []
    for joined in (10**6, 3):
        monkeypatch.setattr(recording_folder, "JOINED_FILES", joined)
        with Recorder(Parts(), tmp_path / str(joined)) as env:
            for _ in range(13):
                env.reset()
                for turn in (0, 1, env.episodes % 2):
                    act(env, turn)
        hashes.append(Dataset(tmp_path / str(joined)).hash)
    assert hashes[0] == hashes[1]
    ranges = [recording.episode_range(x) for x in recording.episode_files(tmp_path / "3")]
    assert ranges == [(0, 8), (9, 11), (12, 12)]
    # a crash after joining and before the small files are gone: they are not read twice
    folder = tmp_path / "3" / recording.EPISODES_FOLDER
    (folder / "000000003-000000005.npz").write_bytes(
        (folder / "000000009-000000011.npz").read_bytes()
    )
    assert Dataset(tmp_path / "3").hash == hashes[0]


KILLED = """
import sys, time
sys.path[:0] = {paths!r}
from test_recorder import Parts, act
from sterling.data import Recorder
env = Recorder(Parts(), {folder!r})
while True:
    env.reset()
    for turn in (0, 1, 1):
        act(env, turn)
    print(env.episodes, flush=True)
"""


def test_a_kill_leaves_every_finished_episode(tmp_path):
    folder = tmp_path / "a"
    code = KILLED.format(paths=[os.path.dirname(__file__)], folder=str(folder))
    run = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) >= 40:
                break
        with pytest.raises(Mistake, match="another Recorder writes to"):
            Recorder(Parts(), folder)
        during = len(Dataset(folder))  # while it is being written
        process.send_signal(signal.SIGKILL)
    data = Dataset(folder)
    assert len(data) >= during >= 40
    assert set(data.lengths.tolist()) == {3}
    assert data.ended.all()
    with Recorder(Parts(), folder) as env:
        assert env.episodes == len(data)


def test_recorder_names_damaged_files_and_refuses_unsupported_spaces(tmp_path):
    with Recorder(Parts(), tmp_path / "a") as env:
        env.reset()
        act(env)
    (file,) = recording.episode_files(tmp_path / "a")
    content = bytearray(file.read_bytes())
    at = content.index(np.float32(1.5).tobytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(Mistake, match=r"000000000-000000000\.npz cannot be read as episodes"):
        Dataset(tmp_path / "a")
    words = Parts()
    words.observation_space = spaces.Text(9)
    with pytest.raises(Mistake, match="Text of 'obs' is not supported"):
        Recorder(words, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(Mistake, match="takes one Gymnasium environment"):
        Recorder(gymnasium.make_vec("CartPole-v1", 2), tmp_path / "b")


def test_recorder_stores_environment_options(tmp_path):
    made = gymnasium.make("CartPole-v1", max_episode_steps=7, sutton_barto_reward=True)
    with Recorder(made, tmp_path / "a") as env:
        env.reset(seed=0)
        env.step(0)
    options = Dataset(tmp_path / "a").facts.options
    assert options == {"sutton_barto_reward": True, "max_episode_steps": 7}
