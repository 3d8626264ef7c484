"""Configurations x seeds as one compiled program: the seed axis becomes a member axis.

A member is one agent: one configuration's numbers and one seed's randomness. Numbers are leaves
of the agent's state, so members that differ in nothing else share a program, whatever is searched;
only whole numbers, words and switches make another. Members of one seed meet the same randomness
(common random numbers), and under ``map`` each is bit-equal to the same training alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from sterling import algorithms
from sterling.training.agent import Agent
from sterling.training.fields import make_config
from sterling.training.loop import Run, restored, stored
from sterling.training.phases import iterations, needs_of
from sterling.training.settings import Settings
from sterling.tuning.space import Fields
from sterling.types import Mistake


def configure(settings: Settings, fields: Fields) -> Settings:
    """The settings with some fields of the Config changed."""
    module = algorithms.find(settings.algorithm)
    whole = {**dataclasses.asdict(settings.config), **fields}
    config = make_config(module, whole, settings.title)
    return dataclasses.replace(settings, config=config)


def program(settings: Settings) -> Any:
    """What members must have in common to share a program (hashable)."""
    needs = needs_of(settings)
    return jax.tree.structure(settings.config), needs, iterations(settings)


def stack(configs: Sequence[Any], seeds: Sequence[int]) -> Any:
    """One Config whose float fields are arrays: each of ``configs`` for so many ``seeds``."""

    def each(*values: float) -> Array:
        return jnp.asarray(np.repeat(np.asarray(values, np.float32), seeds))

    return jax.tree.map(each, *configs)


def gather(trees: Sequence[PyTree], rows: Int[np.ndarray, "member"]) -> PyTree:
    """Members ``rows`` of all ``trees`` put one behind the other; scalars are common to all."""

    def pick(*leaves: Any) -> Any:
        if not isinstance(leaves[0], (jax.Array, np.ndarray)) or leaves[0].ndim == 0:
            return leaves[0]
        if jax.dtypes.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
            return jnp.concatenate(leaves)[rows]
        return jnp.asarray(np.concatenate([np.asarray(leaf) for leaf in leaves])[rows])

    return jax.tree.map(pick, *trees)


def strong(run: Run) -> Run:
    """No leaf of a weak type, as those that are read from disk: else a second program is made."""

    def cast(leaf: Any) -> Any:
        return jnp.asarray(np.asarray(leaf)) if getattr(leaf, "weak_type", False) else leaf

    return jax.tree.map(cast, run)


def reconfigured(agent: Agent, configs: Any) -> Agent:
    """The agents with their Configs' numbers replaced."""
    if not hasattr(agent.state, "config"):
        raise Mistake(
            f"{agent.algorithm} keeps no config in its State: it cannot change on the way"
        )
    return eqx.tree_at(lambda a: a.state.config, agent, configs)


def template(run: Run, members: int) -> Run:
    """What is stored of ``members`` members of such a run: shapes and types."""

    def shape(leaf: Any) -> Any:
        if not isinstance(leaf, (jax.Array, np.ndarray)) or leaf.ndim == 0:
            return leaf
        return jax.ShapeDtypeStruct((members, *leaf.shape[1:]), leaf.dtype)

    return jax.tree.map(shape, stored(run))


def part(run: Run, rows: slice) -> Run:
    """What is stored of some members."""
    return jax.tree.map(
        lambda x: x[rows] if getattr(x, "ndim", 0) else x, jax.device_get(stored(run))
    )


def assemble(fresh: Run, agents: Run, sources: Run, configs: Any, iteration: Int[Array, ""]) -> Run:
    """A run that goes on: agents of some stored members, experience of others.

    ``fresh`` is a run of as many members, whose worlds are taken where they cannot be stored.
    """
    agent = reconfigured(agents.agent, configs)
    return restored(Run(agent, sources.source, fresh.seeds, iteration), fresh)


def episodes(run: Run) -> Any:
    """The tally of a run's finished episodes, on the host."""
    return jax.device_get(run.source.tally)
