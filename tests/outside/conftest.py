"""Files as a user writes them: an algorithm, worlds, and a package that registers names."""

import pytest

from sterling.lookup import entry_points

ALGORITHM = '''"""My PPO: smaller, and with a bonus."""
from sterling.algorithms.online import ppo
from sterling.algorithms.online.ppo import act, init, learn, needs, value
from sterling.types import config


@config
class Config(ppo.Config):
    """PPO's settings and one more."""

    width = 8  # units, fewer
    length: int = 16  # steps of each env
    minibatch: int = 64  # rows
    limit: float = 0.5  # a cost, not a count
'''

WORLD = '''"""A corridor, as a Task, and other worlds."""
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.envs.traced_world import TracedWorld


class Corridor:
    obs = spaces.Box(0.0, 1.0, (1,), np.float32)
    action = spaces.Discrete(2)

    def __init__(self, length: int = 3):
        self.length = length

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state, action, key):
        place = jnp.clip(state + jnp.where(action == 1, 1, -1), 0, self.length)
        there = place == self.length
        obs = jnp.full(1, place / self.length)
        return place, obs, there.astype(jnp.float32), there, jnp.zeros((), bool)


def make(length: int = 3) -> Corridor:
    return Corridor(length)


def undeclared():
    return Corridor()


def gym():
    return gymnasium.make("CartPole-v1", render_mode="rgb_array")


def world(seeds, envs, strategy="map"):
    return TracedWorld(Corridor(), seeds, envs, limit=9, strategy=strategy)


def broken():
    raise RuntimeError("no licence")


def wrong(seeds, envs):
    return 5


task = Corridor(4)
number = 5
'''


SOURCE = """
import equinox as eqx
from sterling import Layer
from sterling.experience.rollouts.rollout_wrapper import Around
from sterling.types import config


class Times(Around, eqx.Module):
    source: eqx.Module
    factor: float

    def live(self, agent, keys):
        source, rows = self.source.live(agent, keys)
        paid = self.factor * rows.reward
        return Times(source, self.factor), eqx.tree_at(lambda row: row.reward, rows, paid)


@config
class Config:
    factor: float = 2.0  # of every reward


def around(source, config, keys, actor):
    return Times(source, config.factor)


LAYER = Layer("doubled", "every reward twice", Config, rollouts=around)
"""


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A folder with ``mine.py`` (an algorithm) and ``maze.py`` (worlds)."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "mine.py").write_text(ALGORITHM)
    (folder / "maze.py").write_text(WORLD)
    return folder


@pytest.fixture
def installed(written, tmp_path, monkeypatch):
    """A package on the path that registers an algorithm, a world, tasks, and a listed name."""
    info = tmp_path / "maze_pack-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: maze-pack\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[sterling.algorithms]\nmaze-ppo = packed_mine\nppo = packed_mine\n"
        "[sterling.worlds]\nmaze-3 = packed_maze:make\n"
        "[sterling.tasks]\nplus-one = packed_tasks\n"
        "[sterling.sources]\ndoubled = packed_source:LAYER\nplr = packed_source:LAYER\n"
    )
    (tmp_path / "packed_mine.py").write_text(ALGORITHM)
    (tmp_path / "packed_maze.py").write_text(WORLD)
    (tmp_path / "packed_source.py").write_text(SOURCE)
    (tmp_path / "packed_tasks.py").write_text(
        "def sample(seed, level):\n    return {'prompt': f'{seed}+1=', 'answer': seed + 1}\n"
        "def verify(task, response):\n    return response.strip() == str(task.answer)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_points.find_plugins.cache_clear()
    yield tmp_path
    entry_points.find_plugins.cache_clear()
