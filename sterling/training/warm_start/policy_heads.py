"""Convert a policy's outputs between the algorithms' forms, for continuous actions.

raw    the mean (PPO)
tanh   the mean before tanh (TD3; imitation, with a deviation beside the network)
both   the mean before tanh and the log deviation, side by side (SAC)
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sterling.algorithms.online import sac, td3
from sterling.nets import imitation_policy

RAW, TANH, BOTH = "raw", "tanh", "both"
LOG_STD = "policy/log_std"


def policy_head(state: Any) -> str:
    """Return the form of a State's policy; the form of discrete choices is RAW in every one."""
    holders = (sac.Policy, td3.Actor, imitation_policy.Policy)
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, holders))
    for node in nodes:
        if isinstance(node, holders) and node.actions.kind == "box":
            return BOTH if isinstance(node, sac.Policy) else TANH
    return RAW


def convert_head(arrays: dict[str, np.ndarray], there: str, here: str) -> dict[str, np.ndarray]:
    """Return the arrays with the last layers of the policy and of its target in the form ``here``.

    Without a log deviation beside the network it is 0, as in a new policy. From RAW to the others
    and back, outputs are not changed: they are squashed by tanh in one of the two.
    """
    if (there == BOTH) == (here == BOTH):
        return arrays
    made = dict(arrays)
    for name in ("policy", "target/policy"):
        last = last_layer(arrays, name)
        if last is None:
            continue
        weight, bias = (arrays[f"{last}/{each}"] for each in ("weight", "bias"))
        if there == BOTH:
            half = weight.shape[-1] // 2
            weight, bias = weight[..., :half], bias[..., :half]
        else:
            spread = arrays.get(LOG_STD, np.zeros_like(bias))
            weight = np.concatenate([weight, np.zeros_like(weight)], -1)
            bias = np.concatenate([bias, spread], -1)
        made |= {f"{last}/weight": weight, f"{last}/bias": bias}
    return made


def squash_note(there: str, here: str) -> str:
    """Return what a line says of outputs that are squashed by tanh in one of the two forms."""
    if (there == RAW) == (here == RAW):
        return ""
    return "its outputs are squashed by tanh here" if there == RAW else "its tanh is left out here"


def last_layer(arrays: dict[str, np.ndarray], name: str) -> str | None:
    """Return the name of a network's last layer; None if there is no such network."""
    count = 0
    while f"{name}/layers/{count}/weight" in arrays:
        count += 1
    return f"{name}/layers/{count - 1}" if count else None
