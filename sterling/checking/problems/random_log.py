"""A small log of random actions in a world, for learners of logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from sterling import envs
from sterling.checking.environments.random_play import Trajectory, play_randomly
from sterling.checking.problems.checked_problem import world_name
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.recording import stored_episodes
from sterling.types import Mistake, Record

ENVS, STEPS = 8, 60
SOURCE = Source("uniformly random actions")


def write_random_log(environment: Any, env_options: dict[str, Any], folder: Path) -> Path:
    """Play random actions in a world, write the episodes to a file in ``folder``, and return its
    path. Raises Mistake for a world of several agents."""
    world: Any = envs.make(environment, (0,), ENVS, strategy="map", **env_options)
    try:
        if world.spec.agents is not None:
            raise Mistake(
                f"a log of random actions has one agent, {world_name(environment)} has several. "
                "Check without data."
            )
        rows = _rows_of_one_seed(play_randomly(world, (0,), STEPS, key=0))
    finally:
        world.close()
    block = stored_episodes.rows_to_block(rows, world, rows.mask.size, 0)
    space = stored_episodes.stored_action_space(world)
    name = environment if isinstance(environment, str) else ""
    facts = Facts(name, sources=(SOURCE,), options=env_options)
    return Dataset.from_block(block, world.spec.obs, space, facts).save(folder / "random.npz")


def _rows_of_one_seed(played: Trajectory) -> Record:
    """Return what was played as rows ``(time, env, ...)``."""
    before = jax.tree.map(
        lambda first, then: np.concatenate([first[None], then[:-1]]), played.first, played.obs
    )
    parts = {name: getattr(played, name) for name in ("action", "reward", "discount")}
    parts |= {"obs": before, "next_obs": played.obs, "last": played.last, "mask": played.mask}
    rows = Record(**parts)
    made: Record = jax.tree.map(lambda x: x[:, 0], rows)
    return made
