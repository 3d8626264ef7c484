"""Generate datasets with Meta-World's scripted policies (Yu 2020, arXiv:1910.10897), one for each
of its fifty tasks.

The environments are EnvPool's, where learners are evaluated too, with the goal in the observation,
which the policies need. The policies are those of the package. Install it without its
dependencies, because it requires an old version of MuJoCo that is not needed here:

    pip install --no-deps "metaworld>=3.1.1,<3.2"

Every episode has 500 steps; ``info/success`` marks where the task is done. An episode's numbers
depend only on the seed and the episode's index.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Arrays, Block
from sterling.data_generation.dataset_order import DatasetOrder, Say, code_commit
from sterling.data_generation.generation_pool import map_in_order
from sterling.envs.compiled import envpool_env
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

EPISODE_STEPS = 500  # steps per episode
ENVPOOL_OPTIONS = {"partially_observable": False}
UNSOLVED_TASKS = ("MetaWorld/DialTurn-v3",)  # its policy solved 0 of 10 episodes in EnvPool
OBS_SPACE = spaces.Box(-np.inf, np.inf, (39,), np.float32)
ACTION_SPACE = spaces.Box(-1.0, 1.0, (4,), np.float32)
INSTALL_COMMAND = 'pip install --no-deps "metaworld>=3.1.1,<3.2"'


def knows(name: str) -> bool:
    """Whether a name has the form of Meta-World's tasks."""
    return name.startswith("MetaWorld/")


def collect(order: DatasetOrder, say: Say) -> Dataset:
    """Collect episodes of a task's policy; the last one is truncated at ``order.size`` rows."""
    _check_task(order.environment)
    count = -(-order.size // EPISODE_STEPS)
    episodes: list[Arrays] = []
    work = [(order.environment, order.seed, number) for number in range(count)]
    for one in map_in_order(play_episode, work, order.workers):
        room = min(EPISODE_STEPS, order.size - EPISODE_STEPS * len(episodes))
        episodes.append({name: x[: room + (len(x) > EPISODE_STEPS)] for name, x in one.items()})
        say(f"{order.environment}: episode {len(episodes)} of {count}")
    arrays = {name: np.concatenate([one[name] for one in episodes]) for name in episodes[0]}
    lengths = np.array([len(one["reward"]) for one in episodes], np.int64)
    name = f"the scripted policy of metaworld {importlib.metadata.version('metaworld')}"
    facts = Facts(
        order.environment,
        None,
        (Source(name, "made", order.command, code_commit()),),
        ENVPOOL_OPTIONS,
    )
    return Dataset.from_block(
        Block(arrays, lengths, np.zeros(count, np.int32)), OBS_SPACE, ACTION_SPACE, facts
    )


def play_episode(environment: str, seed: int, number: int) -> Arrays:
    """Play one episode and return its columns: 500 rows, and 501 observations."""
    rng = np.random.default_rng([seed, number])
    world = _make_world(environment, int(rng.integers(2**31)))
    policy = _policy_classes()[world.spec.config.task_name]()
    obs, done, rows = [world.reset()[0][0]], [False], []
    for _ in range(EPISODE_STEPS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the policy warns of steps too large for the arm
            wanted = policy.get_action(obs[-1])
        action = np.clip(wanted, -1.0, 1.0).astype(np.float32)
        then, reward, ended, _, info = world.step(action[None])
        rows.append((action, reward[0], not ended[0]))
        obs.append(then[0])
        done.append(info["success"][0] > 0)
    world.close()
    action, reward, discount = zip(*rows, strict=True)
    return {
        "obs": np.array(obs, np.float32),
        "action": np.array(action, np.float32),
        "reward": np.array(reward, np.float32),
        "discount": np.array(discount, np.float32),
        "info/success": np.array(done, bool),
    }


def task_names() -> list[str]:
    """Return the names of EnvPool's Meta-World tasks; [] if EnvPool is not installed."""
    return [name for name in envpool_env.names() if knows(name)]


def _check_task(environment: str) -> None:
    """Raise Mistake if a package is missing, the task unknown, or unsolved by its policy."""
    try:
        _policy_classes()
    except ImportError as error:
        raise Mistake(
            f"Meta-World's policies need the package metaworld ({error}). Install it: "
            f"{INSTALL_COMMAND}"
        ) from error
    if reason := envpool_env.unavailable_reason():
        raise Mistake(f"Meta-World's policies need EnvPool's environments, but {reason}.")
    if environment not in task_names():
        near = did_you_mean(
            environment, task_names(), "list them with: sterling list environments metaworld"
        )
        raise Mistake(f"EnvPool has no task {environment!r}{near}")
    if environment in UNSOLVED_TASKS:
        raise Mistake(f"Meta-World's policy does not solve {environment}. Choose another task.")


def _make_world(environment: str, seed: int) -> Any:
    pool = importlib.import_module("envpool")
    return pool.make_gymnasium(environment, num_envs=1, seed=seed, **ENVPOOL_OPTIONS)


def _policy_classes() -> dict[str, Any]:
    """Return the classes of the policies by the names of their tasks, such as "reach-v3"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, Any] = importlib.import_module("metaworld.policies").ENV_POLICY_MAP
    return found
