"""Say how an agent's networks read observations, one line for each array of an observation."""

from __future__ import annotations

import math
from typing import Any

import jax

from sterling.nets.convolution import DRQ_LAYERS, NATURE_LAYERS
from sterling.nets.encoding.encoder_choice import PRESETS
from sterling.nets.encoding.graph_attention import GraphAttention
from sterling.nets.encoding.leaf_kind import LeafKind, item_size
from sterling.nets.encoding.residual_convolution import IMPALA_CHANNELS, ResidualTorso
from sterling.nets.encoding.sequence_attention import SequenceAttention
from sterling.nets.obs_encoder import Encoder, Part
from sterling.types import Mistake

LARGE_VECTOR = 10_000  # numbers from which a vector may be a picture that was not recognised
NOTE = "note: "  # beginning of a line that asks the user to look


def find_encoders(state: Any) -> list[Encoder]:
    """Return the encoders in an agent's state, in the order of its tree."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Encoder))
    return [leaf for leaf in leaves if isinstance(leaf, Encoder)]


def describe_observations(state: Any) -> list[str]:
    """Return a line for each array of an observation, "observations: vector of 17 -> MLP", and
    after a very large vector a note; no lines if the agent has no encoder."""
    for encoder in find_encoders(state):
        return _encoder_lines(encoder)
    return []


def check_choice_is_used(chosen: str, state: Any, name: str) -> None:
    """Raise Mistake if the user chose an encoder and the agent of algorithm ``name`` has none of
    it, so that the choice would have no effect."""
    if chosen and not any(encoder.chosen for encoder in find_encoders(state)):
        raise Mistake(
            f"{name} makes no encoder from its Spec, so encoder has no effect. Write "
            "Encoder.create(key, spec) in its init, or leave out encoder."
        )


def _encoder_lines(encoder: Encoder) -> list[str]:
    if encoder.own is not None:
        kinds = ", ".join(
            " ".join([kind.title, _kind_text(kind)]).strip() for kind in encoder.kinds
        )
        return [f"observations: {kinds} -> {encoder.chosen} ({encoder.size:,} features)"]
    lines = []
    for kind, torso in zip(encoder.kinds, encoder.parts, strict=True):
        if kind.name == "part":  # told with its sequence or graph
            continue
        title = f"observations {kind.title}:".replace(" :", ":")
        lines.append(f"{title} {_kind_text(kind)} -> {_reader_text(kind, torso)}")
        count = math.prod(kind.shape)
        if kind.name == "vector" and count > LARGE_VECTOR:
            lines.append(
                f"{NOTE}{title} {count:,} numbers of shape {kind.shape} are read as one vector. "
                f"{_remedy(kind)}"
            )
    return lines


def _remedy(kind: LeafKind) -> str:
    if kind.layout is not None:
        return "Leave out encoder=flat for convolutions."
    if 2 <= len(kind.shape) <= 4:
        return "If this is a picture, use encoder=nature or impala (docs/networks.md)."
    return "If this is a picture, keep its axes (remove flatten), or reshape it."


def _kind_text(kind: LeafKind) -> str:
    count = math.prod(kind.shape)
    if kind.name == "picture" and kind.layout is not None:
        return f"picture {kind.layout.sides_text}"
    if kind.name in ("sequence", "graph"):
        item = f"1 of {kind.sizes[0]}" if kind.sizes else item_size(kind)
        what = "nodes of" if kind.name == "graph" else "x"
        return f"{kind.name} of up to {kind.shape[0]} {what} {item}"
    if kind.name == "categories":
        return f"{len(kind.sizes)} choices" if len(kind.sizes) != 1 else f"1 of {kind.sizes[0]}"
    shape = "x".join(map(str, kind.shape))
    what = f"picture {shape} as a" if kind.layout is not None else f"{shape} as a"
    return f"vector of {count:,}" if len(kind.shape) < 2 else f"{what} vector of {count:,}"


def _reader_text(kind: LeafKind, torso: Part | None) -> str:
    if kind.name == "categories":
        return f"one-hot ({sum(kind.sizes):,} features)"
    if torso is None:
        return "MLP"
    if isinstance(torso, SequenceAttention | GraphAttention):
        return f"attention ({torso.size:,} features)"
    if isinstance(torso, ResidualTorso):
        is_wide = torso.grid[2] > IMPALA_CHANNELS[-1]
        name = PRESETS["impala-wide" if is_wide else "impala"]
    else:
        names = {len(NATURE_LAYERS): "nature", len(DRQ_LAYERS): "drq"}
        name = PRESETS[names.get(len(torso.layers), "grid")]
    return f"{name} ({torso.size:,} features)"
