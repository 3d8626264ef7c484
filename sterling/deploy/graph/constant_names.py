"""Give the constants of a policy graph the names of the parameters that they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from sterling.deploy.graph.policy_graph import PolicyGraph

NOT_THE_POLICY = ("optimiser", "target")  # parts of a state whose arrays may equal a parameter


def with_parameter_names(graph: PolicyGraph, state: Any, at: int) -> PolicyGraph:
    """Return the graph with every constant that equals a parameter of the agent's state (seed
    ``at``), in any shape, named after it, such as ``nets.policy.layers.0.weight``."""
    names: dict[Any, list[str]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            continue
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if leaf[at].size > 1 and not name.startswith(NOT_THE_POLICY):
            names.setdefault(_token(leaf[at]), []).append(name)
    renamed = {}
    for name, value in graph.constants.items():
        known = names.get(_token(value))
        renamed[name] = known.pop(0) if known else f"constant.{name}"
    nodes = [
        dataclasses.replace(node, inputs=tuple(renamed.get(each, each) for each in node.inputs))
        for node in graph.nodes
    ]
    constants = {renamed[name]: value for name, value in graph.constants.items()}
    outputs = [
        dataclasses.replace(port, source=renamed.get(port.source, port.source))
        for port in graph.outputs
    ]
    return dataclasses.replace(graph, nodes=nodes, constants=constants, outputs=outputs)


def _token(x: Any) -> Any:
    array = np.asarray(x)
    return array.size, str(array.dtype), array.tobytes()
