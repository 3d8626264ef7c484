"""Readers of padded sequences and graphs, each from its entries of the observation."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.encoding.graph_attention import GraphAttention
from sterling.nets.encoding.leaf_kind import (
    EDGE_COUNT,
    EDGE_LINKS,
    EDGES,
    NODE_COUNT,
    LeafKind,
    entry_name,
    item_rows,
    item_size,
)
from sterling.nets.encoding.sequence_attention import SequenceAttention

Reader = SequenceAttention | GraphAttention


def create_padded_readers(key: Key[Array, ""], kinds: list[LeafKind]) -> list[Reader | None]:
    """Return a reader for the last entry of each padded sequence or graph, None for the others."""
    readers: list[Reader | None] = []
    edges = 0  # numbers of an edge of the graph whose entries come
    for index, kind in enumerate(kinds):
        reader: Reader | None = None
        if entry_name(kind) == EDGES:
            edges = item_size(kind)
        if kind.name in ("sequence", "graph"):
            own_key = random_keys.fold(key, "part", index)
            reader = (
                GraphAttention.create(own_key, item_size(kind), edges)
                if kind.name == "graph"
                else SequenceAttention.create(own_key, item_size(kind))
            )
            edges = 0
        readers.append(reader)
    return readers


def read_padded(
    reader: Reader, entries: list[tuple[Array, LeafKind]]
) -> Float[Array, "... features"]:
    """Return the features of a padded sequence or graph; its items, or nodes, come last."""
    items = item_rows(*entries[-1])
    if isinstance(reader, SequenceAttention):
        return reader(items, entries[-2][0])
    named = {entry_name(kind): (x, kind) for x, kind in entries[:-1]}
    lead = items.shape[:-2]
    if EDGE_COUNT not in named:
        none, count = jnp.zeros((*lead, 0, 2), jnp.int32), jnp.zeros(lead, jnp.int32)
        return reader(items, named[NODE_COUNT][0], jnp.zeros((*lead, 0, 0)), none, count)
    links = named[EDGE_LINKS][0].astype(jnp.int32)
    edges = item_rows(*named[EDGES]) if EDGES in named else jnp.zeros((*links.shape[:-1], 0))
    return reader(items, named[NODE_COUNT][0], edges, links, named[EDGE_COUNT][0])
