"""A point in a maze, and a log of somebody who walks about in it: for methods that learn from logs
to reach goals.

A step moves the point by at most 0.5 in x and in y, and by chance with deviation 0.1; cells are
squares of side 1, and what would enter a wall stays. Observations scale the maze to [-1, 1]. Start
and goal are at least ``FAR`` cells of way apart. Within 0.5 of the goal a step pays 1 and the
episode ends, so the mean return is the share of goals that were reached.

The log's player follows the shortest way to a goal, with noise, and then to another one; nothing is
paid. This writes 1,000 episodes of 100 steps:

    python examples/worlds/point_maze.py data/maze
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key

from sterling.data import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block

MAZE = (
    "#########",
    "#...#...#",
    "#.#.#.#.#",
    "#.#...#.#",
    "#.#####.#",
    "#...#...#",
    "###.#.###",
    "#.......#",
    "#########",
)
HALF = len(MAZE) / 2  # of the maze's side, as observations have it
STEP, SLIP, NEAR, FAR = 0.5, 0.1, 0.5, 8
NOISE = 0.5  # of the player's actions, standard deviation
WALL = np.array([[mark == "#" for mark in row] for row in MAZE])
FREE = np.argwhere(~WALL)  # free cells, (cell, 2)


def ways() -> np.ndarray:
    """Return the moves between neighbours on the shortest way from each free cell to each."""
    apart = np.abs(FREE[:, None] - FREE[None]).sum(-1)
    way = np.where(apart > 1, np.inf, apart)
    for between in range(len(FREE)):
        way = np.minimum(way, way[:, between, None] + way[between])
    return way


WAYS = ways()
NEXT = np.where(WAYS[:, None] <= 1, WAYS[None], np.inf).argmin(2)  # on the way, (cell, goal's cell)
PAIRS = np.argwhere(WAYS >= FAR)  # cells to begin at and to reach


class Walk(NamedTuple):
    """Where the point is, where it is to go, and how many steps it went."""

    place: Float[Array, "2"]
    goal: Float[Array, "2"]
    steps: Int[Array, ""]


class Maze:
    """The world, as a :class:`sterling.envs.traced_world.Task`."""

    place = spaces.Box(-1.0, 1.0, (2,), np.float32)
    obs = spaces.Dict({"observation": place, "achieved_goal": place, "desired_goal": place})
    action = spaces.Box(-1.0, 1.0, (2,), np.float32)
    max_episode_steps = 100  # then an episode is truncated

    def reset(self, key: Key[Array, ""]) -> tuple[Walk, dict[str, Array]]:
        """Begin somewhere in a cell, with a goal in one that is far from it."""
        which, within = jax.random.split(key)
        cells = jnp.asarray(FREE, jnp.float32)[jax.random.choice(which, jnp.asarray(PAIRS))]
        start, goal = cells + jax.random.uniform(within, (2, 2), minval=0.2, maxval=0.8)
        walk = Walk(start, goal, jnp.zeros((), jnp.int32))
        return walk, observed(walk)

    def step(self, walk: Walk, action: Float[Array, "2"], key: Key[Array, ""]) -> tuple:
        """Move first in x and then in y, each unless a wall is there."""
        chance = SLIP * jnp.clip(jax.random.normal(key, (2,)), -3.0, 3.0)
        place, moves = walk.place, STEP * jnp.clip(action, -1.0, 1.0) + chance
        for axis in range(2):
            moved = place.at[axis].add(moves[axis])
            cell = jnp.floor(moved).astype(jnp.int32)
            place = jnp.where(jnp.asarray(WALL)[cell[0], cell[1]], place, moved)
        walk = Walk(place, walk.goal, walk.steps + 1)
        seen = observed(walk)
        reward, discount = self.judge(seen["achieved_goal"], seen["desired_goal"])
        over = walk.steps >= self.max_episode_steps
        return walk, seen, reward, discount == 0.0, over

    def judge(self, achieved: Array, desired: Array) -> tuple[Array, Array]:
        """Return the reward and the discount of a step that achieved this place."""
        there: Bool[Array, ""] = jnp.linalg.norm(achieved - desired) * HALF < NEAR
        return there.astype(jnp.float32), 1.0 - there.astype(jnp.float32)


def observed(walk: Walk) -> dict[str, Array]:
    """Return the place, which is also what was achieved, and the goal."""
    place, goal = walk.place / HALF - 1.0, walk.goal / HALF - 1.0
    return {"observation": place, "achieved_goal": place, "desired_goal": goal}


def play(episodes: int, seed: int) -> Dataset:
    """Return a log of a noisy player."""
    maze, numbers = Maze(), np.zeros(WALL.shape, np.int32)
    numbers[tuple(FREE.T)] = np.arange(len(FREE))

    def cell(place: Array) -> Array:
        at = jnp.floor(place).astype(jnp.int32)
        return jnp.asarray(numbers)[at[0], at[1]]

    def step(walk: Walk, key: Key[Array, ""]) -> tuple[Walk, tuple]:
        other, noise, chance = jax.random.split(key, 3)
        point = jnp.asarray(FREE + 0.5)[jnp.asarray(NEXT)[cell(walk.place), cell(walk.goal)]]
        way = point - walk.place
        action = way / jnp.linalg.norm(way) + NOISE * jax.random.normal(noise, (2,))
        action = jnp.clip(action, -1.0, 1.0)
        after, _, reward, *_ = maze.step(walk, action, chance)
        goal = jnp.where(reward > 0, maze.reset(other)[0].goal, walk.goal)
        return after._replace(goal=goal), (observed(walk), action)

    def episode(key: Key[Array, ""]) -> tuple:
        walk, (seen, action) = jax.lax.scan(
            step, maze.reset(key)[0], jax.random.split(key, maze.max_episode_steps)
        )
        final = jax.tree.map(lambda x: x[None], observed(walk))
        return jax.tree.map(lambda *x: jnp.concatenate(x), seen, final), action

    seen, action = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(seed), episodes))
    rows = episodes * maze.max_episode_steps
    columns = {f"obs/{name}": np.asarray(x).reshape(-1, 2) for name, x in seen.items()}
    columns |= {"action": np.asarray(action).reshape(-1, 2)}
    columns |= {"reward": np.zeros(rows, np.float32), "discount": np.ones(rows, np.float32)}
    lengths = np.full(episodes, maze.max_episode_steps)
    block = Block(columns, lengths, np.zeros(episodes, np.int32))
    player = Source("noisy shortest ways", "made", f"point_maze.play({episodes}, {seed})")
    facts = Facts(f"{Path(__file__).resolve()}:Maze", sources=(player,))
    return Dataset.from_block(block, Maze.obs, Maze.action, facts)


if __name__ == "__main__":
    play(1_000, 0).save(sys.argv[1])
