"""Train configurations x seeds as one compiled program: the seed axis becomes a member axis.

A member is one agent: one configuration's numbers and one seed's randomness. Numbers are leaves of
the agent's state, so members that differ in nothing else share a program, whatever is searched;
only whole numbers, words and switches need another program. Members of one seed see the same
randomness (common random numbers), and under ``map`` each is bit-equal to the same training alone.
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
from sterling.training.config.settings import Settings
from sterling.training.fields.config_fields import make_config
from sterling.training.loop import Run, from_checkpoint, to_checkpoint
from sterling.training.phases.phase_sequence import learner_needs, total_iterations
from sterling.tuning.search_space import Fields
from sterling.types import Mistake


def with_config_fields(settings: Settings, fields: Fields) -> Settings:
    """Return the settings with some fields of the Config replaced."""
    module = algorithms.find(settings.algorithm)
    values = {**dataclasses.asdict(settings.config), **fields}
    config = make_config(module, values, settings.title)
    return dataclasses.replace(settings, config=config)


def program_key(settings: Settings) -> Any:
    """Return a hashable that is equal for settings that share a compiled program."""
    needs = learner_needs(settings)
    return jax.tree.structure(settings.config), needs, total_iterations(settings)


def stack_configs(configs: Sequence[Any], seeds: Sequence[int]) -> Any:
    """Return one Config whose float fields are arrays: each config repeated for its ``seeds``."""

    def each(*values: float) -> Array:
        return jnp.asarray(np.repeat(np.asarray(values, np.float32), seeds))

    return jax.tree.map(each, *configs)


def gather_members(trees: Sequence[PyTree], rows: Int[np.ndarray, "member"]) -> PyTree:
    """Concatenate the members of all ``trees`` and return those at ``rows``; scalars are shared."""

    def pick(*leaves: Any) -> Any:
        if not isinstance(leaves[0], (jax.Array, np.ndarray)) or leaves[0].ndim == 0:
            return leaves[0]
        if jax.dtypes.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
            return jnp.concatenate(leaves)[rows]
        return jnp.asarray(np.concatenate([np.asarray(leaf) for leaf in leaves])[rows])

    return jax.tree.map(pick, *trees)


def drop_weak_types(run: Run) -> Run:
    """Return the run without weak types, as runs read from disk are.

    Otherwise a second program would be compiled.
    """

    def cast(leaf: Any) -> Any:
        return jnp.asarray(np.asarray(leaf)) if getattr(leaf, "weak_type", False) else leaf

    return jax.tree.map(cast, run)


def replace_configs(agent: Agent, configs: Any) -> Agent:
    """Return the agents with the numbers of their Configs replaced."""
    if not hasattr(agent.state, "config"):
        raise Mistake(
            f"{agent.algorithm} keeps no config in its State, so it cannot change during training"
        )
    return eqx.tree_at(lambda a: a.state.config, agent, configs)


def stored_template(run: Run, members: int) -> Run:
    """Return shapes and types of a checkpoint of ``members`` members of such a run."""

    def shape(leaf: Any) -> Any:
        if not isinstance(leaf, (jax.Array, np.ndarray)) or leaf.ndim == 0:
            return leaf
        return jax.ShapeDtypeStruct((members, *leaf.shape[1:]), leaf.dtype)

    return jax.tree.map(shape, to_checkpoint(run))


def stored_members(run: Run, rows: slice) -> Run:
    """Return the checkpoint of some members of a run."""
    return jax.tree.map(
        lambda x: x[rows] if getattr(x, "ndim", 0) else x, jax.device_get(to_checkpoint(run))
    )


def assemble_run(
    fresh: Run, agents: Run, sources: Run, configs: Any, iteration: Int[Array, ""]
) -> Run:
    """Build a run that continues: agents of some checkpointed members, experience of others.

    ``fresh`` is a run with as many members; its environments are used where theirs cannot be saved.
    """
    agent = replace_configs(agents.agent, configs)
    return from_checkpoint(Run(agent, sources.source, fresh.seeds, iteration), fresh)


def episode_statistics(run: Run) -> Any:
    """Return the statistics of a run's finished episodes, on the host."""
    return jax.device_get(run.source.tally)
