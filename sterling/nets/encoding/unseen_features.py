"""Policies beside critics that see more: which features a policy does not read."""

from __future__ import annotations

from typing import Any

from sterling.nets.mlp import MLP, PartialMLP
from sterling.nets.obs_encoder import Encoder, feature_count, leaf_spaces
from sterling.problem.action_choices import ACTION_MASK
from sterling.types import Mistake


def without_unseen_features(net: MLP, encoder: Encoder, spec: Any) -> MLP:
    """Return ``net``, which gets the features of ``encoder``, so that it does not read those of
    critic-only entries (``spec.unseen``); unchanged if there are none."""
    if not spec.unseen:
        return net
    if encoder.own is not None:
        raise Mistake(
            f"The encoder {encoder.chosen} reads the whole observation, so nothing in it can be "
            "hidden from the policy alone. Leave out --encoder, or --critic-obs and --obs."
        )
    hidden = [
        name in spec.unseen
        for name in sorted(spec.obs.spaces)
        if name != ACTION_MASK
        for _ in leaf_spaces(spec.obs[name])
    ]
    reads: list[bool] = []
    for unseen, part, kind in zip(hidden, encoder.parts, encoder.kinds, strict=True):
        reads += [not unseen] * feature_count(kind, part)
    return PartialMLP(**vars(net), reads=tuple(reads))
