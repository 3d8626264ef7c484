"""How one array of an observation is encoded; choices and padded items as rows of numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sterling.problem.picture_layout import PictureLayout

# entries of a padded sequence, as in envs/padding/padded_observations.py
COUNT, ITEMS = "padded_count", "padded_items"
# entries of a padded graph, as in envs/padding/padded_graphs.py
NODE_COUNT, NODES = "graph_node_count", "graph_nodes"
EDGE_COUNT, EDGE_LINKS, EDGES = "graph_edge_count", "graph_edge_links", "graph_edges"
# what is read together, in the order of jax.tree.leaves, and the kind of its last entry
PADDED_GROUPS = {
    (COUNT, ITEMS): "sequence",
    (NODE_COUNT, NODES): "graph",
    (EDGE_COUNT, EDGE_LINKS, NODE_COUNT, NODES): "graph",
    (EDGE_COUNT, EDGE_LINKS, EDGES, NODE_COUNT, NODES): "graph",
}
PADDED_KINDS = ("part", "sequence", "graph")  # of an array that belongs to a padded group


class LeafKind(NamedTuple):
    """How one leaf of an observation is encoded."""

    name: str  # picture, categories, vector, sequence, graph, part (of the one after it)
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()  # of categories: the number of values of each entry
    start: tuple[int, ...] = ()  # of categories: the first value of each entry
    path: tuple[str, ...] = ()  # where it is in a dict or tuple; () for the whole observation
    layout: PictureLayout | None = None  # of a picture

    @property
    def title(self) -> str:
        """Return where it is in words: ``camera.left``."""
        return ".".join(self.path)


def with_padded(kinds: list[LeafKind]) -> list[LeafKind]:
    """Return the kinds with those of padded sequences and graphs: neighbours whose names are those
    of :data:`PADDED_GROUPS` (see ``envs/padding/``) and whose counts are one choice each."""
    made = list(kinds)
    for names, group in PADDED_GROUPS.items():
        for first in range(len(kinds) - len(names) + 1):
            last = first + len(names)
            if _is_padded(kinds[first:last], names):
                parts, place = kinds[first : last - 1], kinds[first].path[:-1]
                made[first : last - 1] = [part._replace(name="part") for part in parts]
                made[last - 1] = kinds[last - 1]._replace(name=group, layout=None, path=place)
    return made


def _is_padded(kinds: list[LeafKind], names: tuple[str, ...]) -> bool:
    place = kinds[0].path[:-1]
    return all(
        kind.path == (*place, name)
        and (not name.endswith("_count") or (kind.name, kind.shape) == ("categories", ()))
        for kind, name in zip(kinds, names, strict=True)
    )


def entry_name(kind: LeafKind) -> str:
    """Return the name of a leaf in the dict that holds it; "" for a whole observation."""
    return "".join(kind.path[-1:])


def item_rows(x: Array, kind: LeafKind) -> Float[Array, "... items inputs"]:
    """Return padded items as vectors, choices as one-hot rows."""
    lead = x.shape[: x.ndim - len(kind.shape)]
    if kind.sizes:
        start = np.asarray(kind.start, np.int32).reshape((1,) * len(lead) + (-1,))
        hot = one_hot(x.astype(jnp.int32) - start, kind.sizes)
        return hot.reshape(*lead, kind.shape[0], -1)
    return x.reshape(*lead, kind.shape[0], -1).astype(jnp.float32)


def item_size(kind: LeafKind) -> int:
    """Return how many numbers a padded item is encoded as."""
    return kind.sizes[0] if kind.sizes else math.prod(kind.shape[1:])


def one_hot(
    x: Int[Array, "... entries"], sizes: tuple[int, ...]
) -> Float[Array, "... sum_of_sizes"]:
    """Concatenate the entries' one-hot rows; an entry outside ``0 .. size - 1`` becomes zeros.

    This is one operation, because one per entry of a 30 x 30 grid took half a minute to compile.
    """
    if len(set(sizes)) == 1:
        hot = jax.nn.one_hot(x, sizes[0], dtype=jnp.float32)
        return hot.reshape(*x.shape[:-1], sum(sizes))
    owner = np.repeat(np.arange(len(sizes)), sizes)  # the entry that each feature belongs to
    value = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    value = value.reshape((1,) * (x.ndim - 1) + (-1,))
    return (x[..., owner] == value).astype(jnp.float32)
