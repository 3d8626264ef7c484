"""The parts of an agent's learned state, and their names, which are the same in all algorithms.

An array's name is its path in the algorithm's State, without the holders of networks (``nets``,
``net``) and with one word for one thing: ``policy`` also for what a State calls ``actor``,
``obs_statistics`` for ``normaliser``, ``torso`` for the encoder wherever it is. So PPO's
``nets/policy/layers/0/weight`` and TD3's ``nets/actor/net/layers/0/weight`` have one name,
``policy/layers/0/weight``.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from sterling.nets.mlp import MLP
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.problem.joined_path import named_leaves, path_words

HOLDERS = ("nets", "net")
SYNONYMS = {"actor": "policy", "normaliser": "obs_statistics"}
OBS_STATISTICS, REWARD_STATISTICS = "obs_statistics", "reward_statistics"
NETWORK, STATISTICS, OPTIMISER, NUMBER = "network", "statistics", "optimiser", "number"
# numbers of a State that are computed from its settings or its dataset, or count
NOT_LEARNED = ("planned", "iteration", "scale", "target")
UNLEARNED_PARTS = ("config", "initial")  # settings, and weights that resets return to
INSIDE_POLICY = re.compile(r"^policy/(?=(actor|critics|target)/|log_)")  # a State in a State


@dataclasses.dataclass(frozen=True)
class Part:
    """One network, normaliser, optimiser or number of a State."""

    name: str  # of the node in the tree
    kind: str  # NETWORK, STATISTICS, OPTIMISER, NUMBER
    leaves: dict[str, str]  # names of the arrays -> their paths in the State
    form: str  # what arrays do not show: the activation; whether rewards are normalised

    @property
    def group(self) -> str:
        """Return the first word of its name, by which messages name it."""
        return self.name.partition("/")[0]


def learned_parts(state: PyTree) -> list[Part]:
    """Return the parts of a State (also of one of shapes alone) that were learned: all but its
    Config, its initial weights, its counters, and numbers computed from settings or dataset."""
    nodes = jax.tree_util.tree_leaves_with_path(state, is_leaf=_is_part)
    named, leaves = named_leaves(state, _is_part), iter(named_leaves(state))
    found = []
    for (path, node), (name, _) in zip(nodes, named, strict=True):
        paths = [text for text, _ in itertools.islice(leaves, len(jax.tree.leaves(node)))]
        if _is_learned(path_words(path), node):
            found.append((name, node, paths))
    names = Counter(role_name(name) for name, _, _ in found)
    return [
        _make_part(name if names[role_name(name)] > 1 else role_name(name), node, paths)
        for name, node, paths in found
    ]


def role_name(path: str) -> str:
    """Return the name of a node of a State, the same in all algorithms."""
    words = INSIDE_POLICY.sub("", path).split("/")
    words = [SYNONYMS.get(word, word) for word in words if word not in HOLDERS] or words
    if "critics" in words and ("target" in words or "torso" in words):
        words.remove("critics")
    return "/".join(words if words != ["log_std"] else ["policy", "log_std"])


def _make_part(name: str, node: Any, paths: list[str]) -> Part:
    """Create a part with the ``paths`` of its leaves in the State."""
    below = zip(named_leaves(node), paths, strict=True)
    leaves = {_join(name, x): path for (x, _), path in below if x != "running"}
    return Part(name, _kind_of(node), leaves, _form_of(node))


def _kind_of(node: Any) -> str:
    if _is_optimiser(node):
        return OPTIMISER
    if isinstance(node, (ObsNormaliser, RewardNormaliser)):
        return STATISTICS
    scalar = not isinstance(node, MLP) and node.ndim == 1  # only the seed axis
    return NUMBER if scalar else NETWORK


def _form_of(node: Any) -> str:
    """Return what must be equal besides the arrays' shapes, in the words of messages."""
    if isinstance(node, MLP):
        return f"{node.activation}{' with layer norm' if node.norms else ''}"
    if isinstance(node, RewardNormaliser):
        return "normalised" if node.enabled else "not normalised"
    return ""


def _is_part(node: Any) -> bool:
    return isinstance(node, (MLP, ObsNormaliser, RewardNormaliser)) or _is_optimiser(node)


def _is_optimiser(node: Any) -> bool:
    """Whether this is the state of an optimiser: optax's are named tuples."""
    return hasattr(node, "_fields") and type(node).__module__.partition(".")[0] == "optax"


def _is_learned(words: list[str], node: Any) -> bool:
    if _is_part(node) or not {*words}.isdisjoint(UNLEARNED_PARTS):
        return {*words}.isdisjoint(UNLEARNED_PARTS)
    counts = not jnp.issubdtype(node.dtype, jnp.floating)  # keys are no numbers either
    return not counts and not (node.ndim == 1 and words[-1] in NOT_LEARNED)


def _join(name: str, below: str) -> str:
    return f"{name}/{below}" if below else name
