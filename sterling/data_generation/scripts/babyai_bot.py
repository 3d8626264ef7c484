"""Generate datasets with BabyAI's bot (Chevalier-Boisvert 2019, arXiv:1810.08272), a script that
sees the whole level and solves it: ``pip install "sterling-rl[minigrid]"``.

Levels are those of the package. Observations are those of EnvPool's environments of the same
names, so that learners can be evaluated there: the mission is text in 512 bytes, padded with zeros.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Arrays, Block
from sterling.data_generation.dataset_order import DatasetOrder, Say, code_commit
from sterling.data_generation.generation_pool import map_in_order
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

MISSION_BYTES = 512  # bytes of a mission
FIRST_EPISODES = 32  # episodes played before the number needed is estimated from their lengths
UNSOLVED_LEVELS = (  # by the bot, as its package states
    *("BabyAI-PutNextS5N2Carrying-v0", "BabyAI-PutNextS6N3Carrying-v0"),
    *("BabyAI-PutNextS7N4Carrying-v0", "BabyAI-KeyInBox-v0"),
)
OBS_SPACE = spaces.Dict(
    {
        "direction": spaces.Discrete(4),
        "image": spaces.Box(0, 255, (7, 7, 3), np.uint8),
        "mission": spaces.Box(0, 255, (MISSION_BYTES,), np.uint8),
    }
)


def knows(name: str) -> bool:
    """Whether a name has the form of BabyAI's levels."""
    return name.startswith("BabyAI-")


def collect(order: DatasetOrder, say: Say) -> Dataset:
    """Collect episodes of the bot; the last one is truncated at ``order.size`` rows."""
    _check_level(order.environment)
    episodes: list[Arrays] = []
    rows = 0
    while rows < order.size:
        mean = rows / len(episodes) if episodes else order.size / FIRST_EPISODES
        more = max(round((order.size - rows) / mean), 1)
        numbers = range(len(episodes), len(episodes) + more)
        work = [(order.environment, order.seed, number) for number in numbers]
        for one in map_in_order(play_episode, work, order.workers):
            if rows < order.size:
                episodes.append(_first_rows(one, order.size - rows))
                rows += len(episodes[-1]["reward"])
            say(f"{order.environment}: {rows:,} of {order.size:,} rows")
    arrays = {name: np.concatenate([one[name] for one in episodes]) for name in episodes[0]}
    lengths = np.array([len(one["reward"]) for one in episodes], np.int64)
    name = f"BabyAI's bot of minigrid {importlib.metadata.version('minigrid')}"
    source = Source(name, "made", order.command, code_commit())
    block = Block(arrays, lengths, np.zeros(len(episodes), np.int32))
    return Dataset.from_block(
        block, OBS_SPACE, spaces.Discrete(7), Facts(order.environment, None, (source,))
    )


def play_episode(environment: str, seed: int, number: int) -> Arrays:
    """Play one episode and return its columns: n rows, and n + 1 observations."""
    rng = np.random.default_rng([seed, number])
    with _without_output():
        bot_of = importlib.import_module("minigrid.utils.baby_ai_bot").BabyAIBot
        world = _make_world(environment)
        seen, rows, over, action = [world.reset(seed=int(rng.integers(2**31)))[0]], [], False, None
        bot = bot_of(world)
        while not over:
            action = bot.replan(action)
            obs, reward, ended, cut, _ = world.step(action)
            seen.append(obs)
            rows.append((int(action), reward, not ended))
            over = ended or cut
        world.close()
    action, reward, discount = zip(*rows, strict=True)
    return {
        "obs/direction": np.array([int(obs["direction"]) for obs in seen], np.int64),
        "obs/image": np.array([obs["image"] for obs in seen], np.uint8),
        "obs/mission": np.array([_mission_bytes(obs["mission"]) for obs in seen], np.uint8),
        "action": np.array(action, np.int64),
        "reward": np.array(reward, np.float32),
        "discount": np.array(discount, np.float32),
    }


def level_names() -> list[str]:
    """Return the names of BabyAI's levels; [] if the package is not installed."""
    import gymnasium

    with contextlib.suppress(ImportError):
        importlib.import_module("minigrid")
    return sorted(name for name in gymnasium.registry if knows(name))


def _check_level(environment: str) -> None:
    """Raise Mistake if the package is missing, the level unknown, or unsolved by the bot."""
    try:
        importlib.import_module("minigrid")
    except ImportError as error:
        raise Mistake(
            f"BabyAI's bot needs the package minigrid ({error}). Install it: "
            'pip install "sterling-rl[minigrid]"'
        ) from error
    if environment not in level_names():
        near = did_you_mean(
            environment, level_names(), "list them with: sterling list environments babyai"
        )
        raise Mistake(f"BabyAI has no level {environment!r}{near}")
    if environment in UNSOLVED_LEVELS:
        raise Mistake(f"BabyAI's bot cannot solve {environment}. Choose another level.")


def _make_world(environment: str) -> Any:
    import gymnasium

    return gymnasium.make(environment)


def _first_rows(one: Arrays, rows: int) -> Arrays:
    """Return the first ``rows`` rows of an episode, and their observations."""
    return {name: array[: rows + name.startswith("obs")] for name, array in one.items()}


def _mission_bytes(mission: str) -> np.ndarray:
    """Return a mission as ``MISSION_BYTES`` bytes; raise Mistake if it is longer."""
    encoded = mission.encode()
    if len(encoded) > MISSION_BYTES:
        raise Mistake(
            f"The mission {mission!r} has {len(encoded)} bytes, more than {MISSION_BYTES}. Choose "
            "another level."
        )
    return np.frombuffer(encoded.ljust(MISSION_BYTES, b"\0"), np.uint8)


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """Context manager that hides what the package prints and warns of while it builds levels."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
