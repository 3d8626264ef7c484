"""Films show what happens: they move, in the environment's own units, or one line says why not.

Drawing MuJoCo needs OpenGL without a screen (apt-get install libegl1 libgl1); where MuJoCo's own
renderer finds none, the line that says so is expected.
"""

import os
import pathlib
import subprocess
import sys

import envpool
import gymnasium
import imageio.v2 as imageio
import numpy as np
import pytest

from sterling.envs.compiled import envpool_env
from sterling.report.pictures import policy_video
from sterling.report.pictures.envpool_camera import (
    endless_floors,
    extend_built_floors,
    frame_rate,
)
from sterling.report.pictures.policy_video import record_film
from sterling.types import Mistake


def pictures(path):
    return [np.asarray(frame)[..., :3].astype(int) for frame in imageio.get_reader(path)]


def movement(path):
    """The largest mean change of a pixel against the first picture."""
    first, *rest = pictures(path)
    return max(np.abs(frame - first).mean() for frame in rest)


def first_action(obs):
    return np.zeros(1, np.int32)


def test_film_of_atari_through_envpool(tmp_path):
    seen = []
    path = record_film("Pong-v5", {}, lambda obs: (seen.append(obs), np.array([3]))[1],
                  tmp_path / "new" / "pong.mp4", steps=40)  # fmt: skip
    frames = pictures(path)
    assert len(frames) == 41
    assert frames[0].shape == (420, 320, 3)  # 210 x 160, doubled
    assert movement(path) > 0.2
    assert (seen[0].shape, seen[0].dtype) == ((1, 4, 84, 84), np.uint8)  # as in training


def mujoco_draws(backend):
    """Whether MuJoCo's renderer works here, found out without Sterling."""
    draw = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>')).render()"
    environment = {**os.environ, "MUJOCO_GL": backend}
    asked = [sys.executable, "-c", draw]
    return not subprocess.run(asked, env=environment, capture_output=True, check=False).returncode


def test_film_of_mujoco_through_envpool(tmp_path, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    rng, path = np.random.default_rng(0), tmp_path / "cheetah.gif"

    def film():
        act = lambda obs: rng.uniform(-1, 1, (1, 6)).astype("f4")  # noqa: E731
        return record_film("HalfCheetah-v5", {}, act, path, steps=10)

    if not any(mujoco_draws(backend) for backend in ("egl", "osmesa")):
        with pytest.raises(Mistake, match="apt-get install libegl1"):
            film()
        assert not path.exists()
        return
    film()
    assert pictures(path)[0].shape == (480, 480, 3)
    assert movement(path) > 1.0


def test_floors_of_films_have_no_end_and_change_nothing_else():
    def play():
        pool = envpool.make_gymnasium("HalfCheetah-v5", num_envs=1, seed=3)
        pool.reset()
        actions = np.random.default_rng(0).uniform(-1, 1, (20, 1, 6))
        return np.stack([pool.step(each)[0] for each in actions])

    base = envpool_env.task_defaults("HalfCheetah-v5")["base_path"]
    with endless_floors("HalfCheetah-v5"):
        folder = pathlib.Path(envpool_env.task_defaults("HalfCheetah-v5")["base_path"])
        model = (folder / "mujoco/assets_gym/half_cheetah_envpool.xml").read_text()
        table = (folder / "mujoco/assets_gym/pusher_envpool.xml").read_text()
        endless = play()
    assert 'size="0 0 40.0"' in model
    assert 'texrepeat="1.5 1.5"' in model  # 60 squares on 2 x 40 m
    assert 'size="1 1 0.1"' in table
    np.testing.assert_array_equal(endless, play())
    assert envpool_env.task_defaults("HalfCheetah-v5")["base_path"] == base
    assert not folder.exists()


def test_floors_of_gymnasium_models_have_no_end():
    pytest.importorskip("mujoco")
    made = gymnasium.make("HalfCheetah-v5")
    extend_built_floors(made)
    model = made.unwrapped.model
    assert model.geom_size[0].tolist() == [0.0, 0.0, 40.0]
    assert model.mat_texrepeat[model.geom_matid[0]].tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("name", "options", "rate"),
    [("HalfCheetah-v5", {}, 20), ("HalfCheetah-v5", {"frame_skip": 10}, 10), ("Hopper-v4", {}, 125),
     ("Pong-v5", {}, 15), ("CartPole-v1", {}, 50), ("CheetahRun-v1", {}, 30)],
)  # fmt: skip
def test_film_has_the_frame_rate_of_its_environment(name, options, rate):
    assert frame_rate(name, options) == pytest.approx(rate)


def test_film_says_how_long_it_takes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(policy_video, "SILENT_SECONDS", 0.0)
    record_film(Lamp, {}, lambda obs: np.zeros((1, 1), np.float32), tmp_path / "l.gif", steps=20)
    assert "drawing 8 more pictures, about 0 s" in capsys.readouterr().err


def test_film_of_minatar_is_drawn(tmp_path):
    path = record_film("Breakout-MinAtar", {}, first_action, tmp_path / "breakout.mp4", steps=8)
    assert pictures(path)[0].shape == (320, 320, 3)  # 10 x 10 cells
    assert movement(path) > 0.5


class Lamp(gymnasium.Env):
    """As bright as the last action; ends every third step."""

    metadata = {"render_fps": 5}  # noqa: RUF012 (Gymnasium's own form)
    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, render_mode="rgb_array"):
        self.render_mode, self.level, self.clock = render_mode, 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level, self.clock = 0.0, 0
        return np.array([self.level]), {}

    def step(self, action):
        self.level, self.clock = float(action[0]), self.clock + 1
        return np.array([self.level]), 0.0, self.clock == 3, False, {}

    def render(self):
        if self.render_mode is None:
            return None
        return np.full((321, 333, 3), int(100 * self.level), np.uint8)


def test_film_of_a_gymnasium_factory_uses_environment_units(tmp_path):
    """An agent's 1 is this environment's 2."""
    told = []
    path = record_film(
        Lamp, {}, lambda obs: np.full((1, 1), 1.0, np.float32), tmp_path / "l.mp4", steps=5,
        notice=lambda reward, last: told.append((reward, last)),
    )  # fmt: skip
    levels = [frame.mean() for frame in pictures(path)]
    assert pictures(path)[0].shape == (322, 334, 3)  # H.264 needs even sides
    np.testing.assert_allclose(levels, [0, 200, 200, 200, 0, 200], atol=4)  # resets after an end
    assert imageio.get_reader(path).get_meta_data()["fps"] == 5
    assert told == [(0.0, over) for over in (False, False, True, True, False)]  # 3 ends, 4 resets


def test_film_of_an_undrawable_environment_leaves_no_file(tmp_path):
    path = tmp_path / "film.mp4"
    with pytest.raises(Mistake, match="render_mode"):
        record_film(lambda: Lamp(None), {}, lambda obs: np.zeros((1, 1)), path)
    with pytest.raises(Mistake, match="EnvPool cannot draw Catch-v0"):
        record_film("Catch-v0", {}, first_action, path)
    with pytest.raises(Mistake, match="not a grid of channels"):
        record_film("DeepSea-bsuite", {}, first_action, path)
    with pytest.raises(Mistake, match=r"an \.mp4 or a \.gif"):
        record_film("Pong-v5", {}, first_action, tmp_path / "film.avi")
    assert not list(tmp_path.iterdir())


def test_film_without_opengl_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent")  # no driver to be found
    with pytest.raises(Mistake, match="apt-get install libegl1"):
        record_film("HalfCheetah-v5", {}, first_action, tmp_path / "film.mp4")


@pytest.mark.parametrize("options", [{"stack": 2}, {"flatten": True}, {"max_episode_steps": 0}])
def test_film_applies_wrapper_options_outside_the_environment(options, tmp_path):
    seen = []

    def act(obs):
        seen.append(obs)
        return np.zeros(1, np.int32)

    record_film("CartPole-v1", options, act, tmp_path / "film.gif", steps=3)
    assert seen[0].shape == ((1, 8) if "stack" in options else (1, 4))


def test_film_with_invalid_path_or_steps_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Mistake, match="cannot be written"):
        record_film("CartPole-v1", {}, first_action, tmp_path / "file" / "film.gif", steps=3)
    with pytest.raises(Mistake, match="at least one step"):
        record_film("CartPole-v1", {}, first_action, tmp_path / "film.gif", steps=0)


def test_film_of_an_environment_without_render_is_refused(tmp_path):
    class Bare(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, True, False, {}

    with pytest.raises(Mistake, match=r"no render\(\)"):
        record_film(Bare, {}, lambda obs: np.zeros((1, 1, 1)), tmp_path / "film.mp4")
