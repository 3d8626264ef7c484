"""Generate OGBench's scripted collections (Park 2025, arXiv:2410.20092) with the environments and
oracles of its package: ``pip install "sterling-rl[ogbench]"``.

    pointmaze-{medium,large,giant,teleport}-{navigate,stitch}
    cube-{single,double,triple,quadruple}-{play,noisy}
    scene-{play,noisy}
    puzzle-{3x3,4x4,4x5,4x6}-{play,noisy}

A name ends in ``-v0``, or, with the rewards of one task, in ``-singletask-v0`` or
``-singletask-task1-v0`` to ``-singletask-task5-v0``. Constants are those of the published datasets
(their data_gen_scripts/commands.sh):

    navigate  a new goal whenever one is reached; actions with normal noise of 0.5
    stitch    one goal four cells away
    play      plans with smoothed noise of 0.1, one target after the other
    noisy     closed-loop oracles with normal noise of up to 0.1 times 1 (position), 3 (rotation)
              and 10 (gripper), and random actions with probability 0.1 (puzzle: 0.2)

An episode's numbers depend only on the seed and the episode's index, so any number of processes
makes the same data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block, is_per_observation
from sterling.data_generation.dataset_order import DatasetOrder, Say, code_commit, derive_seed
from sterling.data_generation.generation_pool import map_in_order
from sterling.data_generation.scripts import ogbench_arm, ogbench_maze
from sterling.data_generation.scripts.ogbench_collections import (
    INFO_NAMES,
    MAZES,
    Collection,
    EpisodeColumns,
    parse_collection,
)
from sterling.types import Mistake


def collect(order: DatasetOrder, say: Say) -> Dataset:
    """Generate a collection; its last episode is truncated at ``order.size`` rows."""
    wanted = parse_collection(order.environment)
    with without_warnings():
        import_ogbench()
    count = -(-order.size // wanted.steps)
    work = [(wanted, order.seed, number) for number in range(count)]
    episodes: list[EpisodeColumns] = []
    for episode in map_in_order(play_episode, work, order.workers):
        episodes.append(episode)
        say(f"{order.environment}: {len(episodes)} of {count} episodes")
    lengths = [min(wanted.steps, order.size - number * wanted.steps) for number in range(count)]
    arrays = {name: _concatenate_cut(name, episodes, lengths) for name in episodes[0]}
    with without_warnings():
        world = _make_world(wanted.environment)
        _add_rewards(wanted, world, arrays, lengths)
    version = importlib.metadata.version("ogbench")
    name = f"OGBench {version}'s oracles: {wanted.kind}, {count} episodes of {wanted.steps} steps"
    # format "ogbench": like its files, a trajectory may continue after its task is done
    source = Source(name, "ogbench", order.command, code_commit())
    block = Block(arrays, np.array(lengths, np.int64), np.zeros(count, np.int32))
    facts = Facts(wanted.environment, _reference_scores(wanted, world), (source,))
    made = Dataset.from_block(block, world.observation_space, world.action_space, facts)
    world.close()
    return made


def play_episode(wanted: Collection, seed: int, number: int) -> EpisodeColumns:
    """Play one episode and return its columns: n rows, and n + 1 observations and infos."""
    with without_warnings():
        script = _script_of_process(wanted)
        for attempt in range(1000):
            rng = np.random.default_rng([seed, number, attempt])
            with _seeded_numpy(int(rng.integers(2**32))):
                found = script.play_episode(rng)
            if found is not None:
                return found
    raise Mistake(
        f"The oracle of {wanted.world} failed in 1000 attempts at an episode. Please report this "
        "as a bug of Sterling."
    )


def import_ogbench() -> Any:
    """Import ogbench, which registers its environments; raise Mistake if it is not installed."""
    try:
        return importlib.import_module("ogbench")
    except ImportError as error:
        raise Mistake(
            f"OGBench's scripted collections need its package ({error}). Install it: "
            'pip install "sterling-rl[ogbench]"'
        ) from error


def _make_world(name: str, **options: Any) -> Any:
    import gymnasium

    import_ogbench()
    return gymnasium.make(name, **options)


_script_cache: dict[Collection, Any] = {}  # one per process, since environments are slow to build


def _script_of_process(wanted: Collection) -> Any:
    """Return the script of a collection, with its environment, built once per process."""
    plain = dataclasses.replace(wanted, task="")
    if plain not in _script_cache:
        script = ogbench_maze.Script if wanted.world in MAZES else ogbench_arm.Script
        _script_cache[plain] = script(plain, _make_world)
    return _script_cache[plain]


def _concatenate_cut(name: str, episodes: list[EpisodeColumns], lengths: list[int]) -> np.ndarray:
    """Concatenate a column over all episodes, each truncated to its length."""
    more = is_per_observation(name)
    return np.concatenate([one[name][: n + more] for one, n in zip(episodes, lengths, strict=True)])


def _add_rewards(
    wanted: Collection, world: Any, arrays: EpisodeColumns, lengths: list[int]
) -> None:
    """Add rewards and discounts to the columns: zeros and ones without a task; with one, those of
    OGBench's own rule (success is judged in the observation before the action, and the discount is
    0 there)."""
    count = sum(lengths)
    arrays["reward"], arrays["discount"] = np.zeros(count, np.float32), np.ones(count, np.float32)
    if not wanted.task:
        return
    relabel = importlib.import_module("ogbench.relabel_utils").relabel_dataset
    before = np.arange(count) + np.repeat(np.arange(len(lengths)), lengths)
    rows = {name: arrays[f"info/{name}"][before] for name in INFO_NAMES if f"info/{name}" in arrays}
    with _seeded_numpy(derive_seed(0, "relabel")):
        world.reset(seed=0)
        relabel(world.spec.id, world, rows)
    arrays["reward"], arrays["discount"] = rows["rewards"], rows["masks"]


def _reference_scores(wanted: Collection, world: Any) -> tuple[float, float] | None:
    """Return the returns of an agent that does nothing, and of one that succeeds at once."""
    if not wanted.task:
        return None
    with without_warnings(), _seeded_numpy(derive_seed(0, "reference")):
        world.reset(seed=0)
        reward = world.step(np.zeros(world.action_space.shape, np.float32))[1]
    return float(reward) * world.spec.max_episode_steps, 0.0


@contextlib.contextmanager
def _seeded_numpy(seed: int) -> Iterator[None]:
    """Context manager that seeds NumPy's global generator, which OGBench uses, and restores it."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Context manager that hides warnings of other packages (missing displays, precision)."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
