"""Meta-World's scripted policies (Yu 2020, arXiv:1910.10897), one for each of its fifty tasks.

The worlds are EnvPool's, in which learners are judged too, with the goal to be seen, as the
policies need it. The policies are those of the package, which has to be told to leave other
packages as they are, since it asks for one old MuJoCo of its own that it does not need here:

    pip install --no-deps "metaworld>=3.1.1,<3.2"

Every episode has 500 steps; ``info/success`` says where the task is done. An episode's numbers
depend on the seed and on its own number alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.columns import Arrays, Block
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.envs import envpool
from sterling.factory.agents import Say
from sterling.factory.crew import each
from sterling.factory.make import Order, commit
from sterling.naming import hint
from sterling.types import Mistake

STEPS = 500  # of an episode
OPTIONS = {"partially_observable": False}
UNSOLVED = ("MetaWorld/DialTurn-v3",)  # by its policy, in EnvPool's world: 0 of 10 episodes
OBS = spaces.Box(-np.inf, np.inf, (39,), np.float32)
ACTION = spaces.Box(-1.0, 1.0, (4,), np.float32)
INSTALL = 'pip install --no-deps "metaworld>=3.1.1,<3.2"'


def knows(name: str) -> bool:
    """Whether a name has the form of Meta-World's."""
    return name.startswith("MetaWorld/")


def collect(order: Order, say: Say) -> Dataset:
    """Episodes of a task's policy; the last one is cut where ``order.size`` rows are reached."""
    _check(order.environment)
    count = -(-order.size // STEPS)
    lived: list[Arrays] = []
    work = [(order.environment, order.seed, number) for number in range(count)]
    for one in each(episode, work, order.workers):
        room = min(STEPS, order.size - STEPS * len(lived))
        lived.append({name: x[: room + (len(x) > STEPS)] for name, x in one.items()})
        say(f"{order.environment}: episode {len(lived)} of {count}")
    arrays = {name: np.concatenate([one[name] for one in lived]) for name in lived[0]}
    lengths = np.array([len(one["reward"]) for one in lived], np.int64)
    name = f"the scripted policy of metaworld {importlib.metadata.version('metaworld')}"
    facts = Facts(
        order.environment,
        None,
        (Source(name, "made", order.words, commit()),),
        OPTIONS,
    )
    return Dataset.of(Block(arrays, lengths, np.zeros(count, np.int32)), OBS, ACTION, facts)


def episode(environment: str, seed: int, number: int) -> Arrays:
    """One episode's columns: 500 rows, and 501 observations."""
    dice = np.random.default_rng([seed, number])
    world = _made(environment, int(dice.integers(2**31)))
    policy = _policies()[world.spec.config.task_name]()
    obs, done, rows = [world.reset()[0][0]], [False], []
    for _ in range(STEPS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that are larger than the arm can make
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


def names() -> list[str]:
    """The tasks that EnvPool has; none where it is not installed."""
    return [name for name in envpool.names() if knows(name)]


def _check(environment: str) -> None:
    """Raises Mistake where there is nothing to play or nobody who can."""
    try:
        _policies()
    except ImportError as error:
        raise Mistake(
            f"Meta-World's policies need the package metaworld ({error}): {INSTALL}"
        ) from error
    if reason := envpool.missing():
        raise Mistake(f"Meta-World's policies play in EnvPool's worlds, and {reason}")
    if environment not in names():
        near = hint(environment, names(), "sterling list environments metaworld")
        raise Mistake(f"EnvPool has no task {environment!r}{near}")
    if environment in UNSOLVED:
        raise Mistake(f"Meta-World's policy does not solve {environment}; choose another task")


def _made(environment: str, seed: int) -> Any:
    pool = importlib.import_module("envpool")
    return pool.make_gymnasium(environment, num_envs=1, seed=seed, **OPTIONS)


def _policies() -> dict[str, Any]:
    """The policies' classes by the names of their tasks, such as "reach-v3"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, Any] = importlib.import_module("metaworld.policies").ENV_POLICY_MAP
    return found
