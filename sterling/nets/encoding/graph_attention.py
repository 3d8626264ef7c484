"""The encoder of padded graphs: attention along edges, then a mean and a maximum over nodes."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.nets.encoding.sequence_attention import (
    HEADS,
    MASKED,
    WIDTH,
    create_layers,
    pool_real_items,
)
from sterling.nets.mlp import Linear

ROUNDS = 2  # a node's features tell of nodes that are so many edges away


class Messages(eqx.Module):
    """One round of attention along edges (GATv2, Brody 2022, arXiv:2105.14491, equation 7) with
    edge features:

        e_ij = a . leaky_relu(W_s h_j + W_t h_i + f_ij),   weights of node i: softmax over its j
        h_i <- h_i + W_m sum_j softmax_j(e_ij) (W_v h_j + f_ij)

    where j runs over the neighbours of i and i itself, with ``HEADS`` heads.
    """

    layers: dict[str, Linear]
    attention: Float[Array, "heads features"]

    @classmethod
    def create(cls, key: Key[Array, ""]) -> Messages:
        """Create one round."""
        widths = dict.fromkeys(("sender", "receiver", "value", "merge"), (WIDTH, WIDTH))
        shape = (HEADS, WIDTH // HEADS)
        attention = jax.random.normal(random_keys.fold(key, "attention"), shape, jnp.float32)
        return cls(create_layers(key, widths), attention / shape[1] ** 0.5)

    def __call__(
        self,
        nodes: Float[Array, "graph nodes width"],
        senders: Float[Array, "graph messages nodes"],
        receivers: Float[Array, "graph messages nodes"],
        edges: Float[Array, "graph messages width"],
    ) -> Float[Array, "graph nodes width"]:
        """Return the nodes' new features. ``senders`` and ``receivers`` say, one-hot, from where to
        where each message goes; rows of zeros are padding."""
        layers, lead = self.layers, edges.shape[:2]
        pair = senders @ layers["sender"](nodes) + receivers @ layers["receiver"](nodes) + edges
        pair = jax.nn.leaky_relu(pair, 0.2).reshape(*lead, HEADS, -1)
        scores = jnp.einsum("gmhd,hd->ghm", pair, self.attention)
        goes_to = jnp.swapaxes(receivers, 1, 2)[:, None] > 0.0
        weights = jax.nn.softmax(jnp.where(goes_to, scores[:, :, None], MASKED), -1)
        weights = jnp.where(goes_to, weights, 0.0)  # a node of the padding gets nothing
        values = (senders @ layers["value"](nodes) + edges).reshape(*lead, HEADS, -1)
        mixed = jnp.einsum("ghnm,gmhd->gnhd", weights, values).reshape(nodes.shape)
        return nodes + layers["merge"](mixed)


class GraphAttention(eqx.Module):
    """``ROUNDS`` rounds of messages between the nodes of a graph, pooled by mean and maximum.

    Messages go both ways along each edge, with an own embedding of the edge for either way. The
    order of nodes and of edges changes nothing, nor does padding.
    """

    layers: dict[str, Linear]
    rounds: tuple[Messages, ...]
    size: int = eqx.field(static=True, default=2 * WIDTH)

    @classmethod
    def create(cls, key: Key[Array, ""], node_inputs: int, edge_inputs: int) -> GraphAttention:
        """Create the encoder for nodes and edges of so many numbers; edges may have none."""
        widths = {
            **{"embed": (node_inputs, WIDTH), "last": (WIDTH, WIDTH)},
            **{"forward": (edge_inputs, WIDTH), "backward": (edge_inputs, WIDTH)},
        }
        rounds = [Messages.create(random_keys.fold(key, "round", index)) for index in range(ROUNDS)]
        layers = create_layers(key, widths)
        # edges without features have one embedding for either way, which must not begin at 0
        for way in ("forward", "backward"):
            start = jax.random.normal(random_keys.fold(key, f"{way} way"), (WIDTH,), jnp.float32)
            layers[way] = Linear(layers[way].weight, start / WIDTH**0.5)
        return cls(layers, tuple(rounds))

    def __call__(
        self,
        nodes: Float[Array, "... nodes inputs"],
        node_count: Int[Array, "..."],
        edges: Float[Array, "... edges numbers"],
        links: Int[Array, "... edges 2"],
        edge_count: Int[Array, "..."],
    ) -> Float[Array, "... features"]:
        """Return the features of graphs whose first ``node_count`` nodes and ``edge_count`` edges
        are real. Edge i links the nodes ``links[i]``."""
        lead = nodes.shape[:-2]
        rows = math.prod(lead)  # there may be no edges, so -1 would be undetermined
        nodes, edges, links = (x.reshape(rows, *x.shape[-2:]) for x in (nodes, edges, links))
        is_node, is_edge = (
            jnp.arange(x.shape[1])[None] < count.reshape(-1)[:, None]
            for x, count in ((nodes, node_count), (edges, edge_count))
        )
        x = self.layers["embed"](jnp.where(is_node[..., None], nodes, 0.0))
        messages = self._messages(links, edges, is_edge, is_node)
        for each in self.rounds:
            x = each(x, *messages)
        features = pool_real_items(jax.nn.relu(self.layers["last"](x)), is_node)
        return features.reshape(*lead, self.size)

    def _messages(
        self,
        links: Int[Array, "graph edges 2"],
        edges: Float[Array, "graph edges numbers"],
        is_edge: Bool[Array, "graph edges"],
        is_node: Bool[Array, "graph nodes"],
    ) -> tuple[Array, Array, Array]:
        """Return senders, receivers and edge features of all messages: along each edge, back, and
        of each node to itself."""
        count = is_node.shape[1]
        edges = jnp.where(is_edge[..., None], edges, 0.0)
        first, second = (
            jnp.where(is_edge[..., None], jax.nn.one_hot(links[..., end], count), 0.0)
            for end in (0, 1)
        )
        own = jnp.where(is_node[..., None], jnp.eye(count)[None], 0.0)
        ways = [self.layers[way](edges) for way in ("forward", "backward")]
        none = jnp.zeros((*is_node.shape, WIDTH), jnp.float32)
        return (
            jnp.concatenate([first, second, own], 1),
            jnp.concatenate([second, first, own], 1),
            jnp.concatenate([*ways, none], 1),
        )
