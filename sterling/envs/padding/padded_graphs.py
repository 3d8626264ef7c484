"""Graphs in observations, padded to a stated number of nodes and of edges.

A ``Graph`` becomes a Dict of ``graph_node_count`` and ``graph_nodes`` and, with edges,
``graph_edge_count``, ``graph_edge_links`` (the two nodes of each edge) and, if edges have
features, ``graph_edges``. This file runs inside worker processes: it imports nothing slow (no JAX).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import ContractViolation
from sterling.envs.padding.padded_items import pad_rows, padded_rows_space

NODE_COUNT, NODES = "graph_node_count", "graph_nodes"
EDGE_COUNT, EDGE_LINKS, EDGES = "graph_edge_count", "graph_edge_links", "graph_edges"
ENDS: Any = spaces.Box(0, np.iinfo(np.int64).max, (2,), np.int64)


def padded_graph_space(graph: spaces.Graph, nodes: int, edges: int | None) -> spaces.Dict:
    """Return the space of a padded graph. Raises :class:`ContractViolation` for edges without a
    maximum, and for nodes or edges that cannot be rows."""
    parts: dict[str, spaces.Space[Any]] = {
        NODE_COUNT: spaces.Discrete(nodes + 1),
        NODES: padded_rows_space(graph.node_space, nodes, "Graph"),
    }
    if edges is None and graph.edge_space is not None:
        said = "Say how many edges it may hold at most: --env max_edges=64"
        raise ContractViolation(f"observation_space has a Graph. {said}")
    if edges is not None:
        parts |= {
            EDGE_COUNT: spaces.Discrete(edges + 1),
            EDGE_LINKS: spaces.MultiDiscrete(np.full((edges, 2), nodes)),
        }
        if graph.edge_space is not None:
            parts[EDGES] = padded_rows_space(graph.edge_space, edges, "Graph")
    return spaces.Dict(parts)


def pad_graph(space: spaces.Dict, graph: spaces.Graph, obs: Any) -> dict[str, Any]:
    """Return a graph (an object with ``nodes``, ``edges`` and ``edge_links``) in the form of
    ``space``. Raises :class:`ContractViolation` for too many nodes or edges, a link to a node that
    is not there, and links that do not fit the edges."""
    nodes = pad_rows(space[NODES], graph.node_space, obs.nodes, "node", "max_items")
    padded = {NODE_COUNT: np.int64(len(obs.nodes)), NODES: nodes}
    links = np.zeros((0, 2), np.int64) if obs.edge_links is None else np.asarray(obs.edge_links)
    if EDGE_COUNT not in space.spaces:
        if len(links):
            said = f"Use --env max_edges={len(links)} or more"
            raise ContractViolation(f"an observation holds {len(links)} edges. {said}")
        return padded
    rows = pad_rows(space[EDGE_LINKS], ENDS, links, "edge", "max_edges")
    is_wrong = ((links < 0) | (links >= len(obs.nodes))).any(-1)
    if is_wrong.any():
        wrong = int(np.argmax(is_wrong))
        said = f"and there are {len(obs.nodes)} nodes"
        raise ContractViolation(f"edge {wrong} links the nodes {links[wrong].tolist()}, {said}")
    padded |= {EDGE_COUNT: np.int64(len(links)), EDGE_LINKS: rows}
    if EDGES in space.spaces and graph.edge_space is not None:
        edges = [] if obs.edges is None else obs.edges
        if len(edges) != len(links):
            raise ContractViolation(f"an observation has {len(edges)} edges, {len(links)} links")
        padded[EDGES] = pad_rows(space[EDGES], graph.edge_space, edges, "edge", "max_edges")
    return padded
