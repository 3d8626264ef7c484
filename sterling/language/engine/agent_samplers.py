"""The samplers of a learning agent: one for each of its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from sterling.language.engine import slots
from sterling.language.engine.ask import Sampler
from sterling.language.engine.local_sampler import LocalSampler
from sterling.language.engine.slots import SlotShapes
from sterling.language.models.causal_lm import LanguageModel
from sterling.system.mistake import Mistake


@runtime_checkable
class TextAgent(Protocol):
    """An agent that speaks: its ``state.model``, with a leading seed axis, does. An agent with
    ``samplers(shapes)`` brings its own instead, one for each seed."""

    state: Any


def seed_samplers(agent: TextAgent, shapes: SlotShapes) -> Sequence[Sampler]:
    """Return a sampler of each seed's model. Raises Mistake for an agent that has no model."""
    own = getattr(agent, "samplers", None)
    if own is not None:
        return own(shapes)
    models = getattr(agent.state, "model", None)
    if not isinstance(models, LanguageModel):
        raise Mistake(
            f"{type(agent.state).__name__} has no language model. Keep the model that answers in "
            "the State, as `model`."
        )
    seeds = jax.tree.leaves(models)[0].shape[0]
    counted = getattr(agent.state, "updates", None)
    versions = [0] * seeds if counted is None else np.asarray(counted).tolist()
    return [
        LocalSampler(slots.for_decoding(models, seed), shapes, version=versions[seed])
        for seed in range(seeds)
    ]
