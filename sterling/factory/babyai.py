"""BabyAI's bot (Chevalier-Boisvert 2019, arXiv:1810.08272), which sees what it needs of a level and
solves it: ``pip install "sterling-rl[minigrid]"``.

Levels are those of the package, observed as EnvPool's worlds of the same names are, so that
learners can be judged there: the mission is text in 512 bytes, filled up with zeros.
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

from sterling.data.columns import Arrays, Block
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.factory.agents import Say
from sterling.factory.crew import each
from sterling.factory.make import Order, commit
from sterling.naming import hint
from sterling.types import Mistake

LETTERS = 512  # bytes of a mission
FIRST = 32  # episodes before it is known how many are needed
UNSOLVED = (  # by the bot, as its package says
    *("BabyAI-PutNextS5N2Carrying-v0", "BabyAI-PutNextS6N3Carrying-v0"),
    *("BabyAI-PutNextS7N4Carrying-v0", "BabyAI-KeyInBox-v0"),
)
OBS = spaces.Dict(
    {
        "direction": spaces.Discrete(4),
        "image": spaces.Box(0, 255, (7, 7, 3), np.uint8),
        "mission": spaces.Box(0, 255, (LETTERS,), np.uint8),
    }
)


def knows(name: str) -> bool:
    """Whether a name is one of BabyAI's."""
    return name.startswith("BabyAI-")


def collect(order: Order, say: Say) -> Dataset:
    """Episodes of the bot; the last one is cut where ``order.size`` rows are reached."""
    _check(order.environment)
    lived: list[Arrays] = []
    rows = 0
    while rows < order.size:
        mean = rows / len(lived) if lived else order.size / FIRST
        more = max(round((order.size - rows) / mean), 1)
        numbers = range(len(lived), len(lived) + more)
        work = [(order.environment, order.seed, number) for number in numbers]
        for one in each(episode, work, order.workers):
            if rows < order.size:
                lived.append(_cut(one, order.size - rows))
                rows += len(lived[-1]["reward"])
            say(f"{order.environment}: {rows:,} of {order.size:,} rows")
    arrays = {name: np.concatenate([one[name] for one in lived]) for name in lived[0]}
    lengths = np.array([len(one["reward"]) for one in lived], np.int64)
    name = f"BabyAI's bot of minigrid {importlib.metadata.version('minigrid')}"
    source = Source(name, "made", order.words, commit())
    block = Block(arrays, lengths, np.zeros(len(lived), np.int32))
    return Dataset.of(block, OBS, spaces.Discrete(7), Facts(order.environment, None, (source,)))


def episode(environment: str, seed: int, number: int) -> Arrays:
    """One episode's columns: n rows, and n + 1 observations."""
    dice = np.random.default_rng([seed, number])
    with _silence():
        bot_of = importlib.import_module("minigrid.utils.baby_ai_bot").BabyAIBot
        world = _made(environment)
        seen, rows, over, action = [world.reset(seed=int(dice.integers(2**31)))[0]], [], False, None
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
        "obs/mission": np.array([_letters(obs["mission"]) for obs in seen], np.uint8),
        "action": np.array(action, np.int64),
        "reward": np.array(reward, np.float32),
        "discount": np.array(discount, np.float32),
    }


def names() -> list[str]:
    """BabyAI's levels; none where its package is not installed."""
    import gymnasium

    with contextlib.suppress(ImportError):
        importlib.import_module("minigrid")
    return sorted(name for name in gymnasium.registry if knows(name))


def _check(environment: str) -> None:
    """Raises Mistake where the bot cannot play."""
    try:
        importlib.import_module("minigrid")
    except ImportError as error:
        raise Mistake(
            f"BabyAI's bot needs the package minigrid ({error}): "
            'pip install "sterling-rl[minigrid]"'
        ) from error
    if environment not in names():
        near = hint(environment, names(), "sterling list environments babyai")
        raise Mistake(f"BabyAI has no level {environment!r}{near}")
    if environment in UNSOLVED:
        raise Mistake(f"BabyAI's bot cannot solve {environment}; choose another level")


def _made(environment: str) -> Any:
    import gymnasium

    return gymnasium.make(environment)


def _cut(one: Arrays, rows: int) -> Arrays:
    """The first rows of an episode."""
    return {name: array[: rows + name.startswith("obs")] for name, array in one.items()}


def _letters(mission: str) -> np.ndarray:
    """Text as bytes; raises Mistake where it does not fit."""
    said = mission.encode()
    if len(said) > LETTERS:
        raise Mistake(f"a mission is {len(said)} letters long, more than {LETTERS}: {mission}")
    return np.frombuffer(said.ljust(LETTERS, b"\0"), np.uint8)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without what the package prints and warns of while it builds levels."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
