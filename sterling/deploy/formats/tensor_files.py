"""Write a policy graph as arrays with a JSON description: .npz and .safetensors, which
``policy_numpy.py`` reads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from sterling.deploy.graph.policy_graph import PolicyGraph, Port

FORMAT = "sterling-policy"
VERSION = 1


def describe_graph(graph: PolicyGraph, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a graph without its arrays, and its metadata, as one JSON object."""
    return {
        **{"format": FORMAT, "version": VERSION, "metadata": metadata},
        "inputs": [_port_json(port) for port in graph.inputs],
        "outputs": [_port_json(port) for port in graph.outputs],
        "constants": list(graph.constants),
        "nodes": [
            {
                **{"operation": node.operation, "inputs": list(node.inputs)},
                **{"output": node.output.name, "shape": list(node.output.shape)},
                **{"dtype": node.output.dtype, **node.attributes},
            }
            for node in graph.nodes
        ],
    }


def _port_json(port: Port) -> dict[str, Any]:
    found = dataclasses.asdict(port)
    tensor = found.pop("tensor")
    return {**tensor, **found, "shape": list(tensor["shape"])}


def _arrays(graph: PolicyGraph) -> dict[str, np.ndarray]:
    start = {f"initial/{name}": np.asarray(x) for name, x in graph.initial_state.items()}
    return {**graph.constants, **start}


def write_npz(path: Path, graph: PolicyGraph, metadata: dict[str, Any]) -> None:
    """Write the arrays and the description as a NumPy archive."""
    described = json.dumps(describe_graph(graph, metadata))
    with path.open("wb") as file:
        arrays: dict[str, Any] = {"description": np.array(described), **_arrays(graph)}
        np.savez(file, **arrays)


def write_safetensors(path: Path, graph: PolicyGraph, metadata: dict[str, Any]) -> None:
    """Write the arrays as safetensors; the description is an entry of its metadata."""
    from safetensors.numpy import save_file

    described = json.dumps(describe_graph(graph, metadata))
    arrays = {name: np.ascontiguousarray(x) for name, x in _arrays(graph).items()}
    arrays = {name: x.reshape(np.shape(_arrays(graph)[name])) for name, x in arrays.items()}
    save_file(arrays, path, metadata={"description": described, "format": FORMAT})
