"""Graphs in observations: padded, masked, and read by attention along edges."""

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import GraphInstance

import sterling
from sterling import envs
from sterling.envs.padding.padded_observations import PaddedObservations
from sterling.nets.encoding.encoder_description import describe_observations
from sterling.nets.encoding.graph_attention import GraphAttention, Messages
from sterling.nets.encoding.sequence_attention import HEADS, WIDTH
from sterling.nets.obs_encoder import Encoder
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Mistake

NODE = spaces.Box(-1.0, 1.0, (2,), np.float32)
EDGE = spaces.Box(0.0, 1.0, (1,), np.float32)


class Neighbours(gymnasium.Env):
    """Pays 1 for action 1 if the marked node is linked to a node whose second number is 1, else for
    action 0. Episodes take one step."""

    observation_space = spaces.Graph(NODE, EDGE)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        count = int(self.np_random.integers(3, 6))
        nodes = np.zeros((count, 2), np.float32)
        nodes[:, 1] = self.np_random.choice([-1.0, 1.0], count)
        marked, friend, other = self.np_random.permutation(count)[:3]
        nodes[marked, 0] = 1.0
        links = np.array([[marked, friend], [friend, other]])
        if self.np_random.random() < 0.5:  # the way of an edge does not matter
            links[0] = links[0, ::-1]
        self.right = int(nodes[friend, 1] > 0.0)
        edges = np.ones((2, 1), np.float32)
        order = self.np_random.permutation(2)
        return GraphInstance(nodes, edges[order], links[order]), {}

    def step(self, action):
        reward = float(action == self.right)
        return self.reset()[0], reward, True, False, {}


def graph(nodes=3, edges=((0, 1), (1, 2)), seed=0):
    draw = np.random.default_rng(seed)
    links = np.asarray(edges, np.int64).reshape(-1, 2)
    features = draw.uniform(0.0, 1.0, (len(links), 1)).astype(np.float32)
    return GraphInstance(draw.uniform(-1.0, 1.0, (nodes, 2)).astype(np.float32), features, links)


features_of = eqx.filter_jit(lambda encoder, obs: encoder(obs))


def read(instance, nodes=6, edges=8, space=None):
    """The features of a graph, padded to so many nodes and edges."""
    env = Neighbours()
    env.observation_space = space or Neighbours.observation_space
    padded = PaddedObservations(env, nodes, edges)
    made = Encoder.create(jax.random.key(0), padded.observation_space)
    obs = padded.observation(instance)
    assert padded.observation_space.contains(obs)
    return np.asarray(features_of(made, jax.tree.map(jnp.asarray, obs)))


def test_graph_attention_ignores_padding_and_node_order():
    one = graph()
    order, place = np.array([2, 0, 1]), np.array([1, 2, 0])  # place[order[i]] = i
    shuffled = GraphInstance(one.nodes[order], one.edges[::-1], place[one.edge_links][::-1])
    np.testing.assert_allclose(read(one), read(one, 3, 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(read(one), read(shuffled), rtol=1e-5, atol=1e-6)


def test_graph_attention_masks_padding_of_any_content():
    env = PaddedObservations(Neighbours(), 6, 8)
    made = Encoder.create(jax.random.key(0), env.observation_space)
    obs = jax.tree.map(jnp.asarray, env.observation(graph()))
    other = obs | {
        "graph_nodes": obs["graph_nodes"].at[3:].set(9.0),
        "graph_edges": obs["graph_edges"].at[2:].set(9.0),
        "graph_edge_links": obs["graph_edge_links"].at[2:].set(1),
    }
    np.testing.assert_array_equal(features_of(made, obs), features_of(made, other))


def test_graph_attention_depends_on_links_edges_and_distant_nodes():
    chain = graph(4, ((0, 1), (1, 2), (2, 3)))
    relinked = chain._replace(edge_links=np.array([[0, 1], [1, 2], [1, 3]]))
    reweighted = chain._replace(edges=chain.edges[::-1])
    turned = chain._replace(edge_links=chain.edge_links[:, ::-1])
    for other in (relinked, reweighted, turned):
        assert np.abs(read(chain) - read(other)).max() > 1e-3


def test_graph_attention_messages_go_both_ways_and_to_self():
    made = GraphAttention.create(jax.random.key(0), 2, 1)
    links, is_edge = jnp.asarray([[[0, 1], [2, 0]]]), jnp.asarray([[True, False]])
    features, is_node = jnp.ones((1, 2, 1)), jnp.asarray([[True, True, False]])
    senders, receivers, edges = made._messages(links, features, is_edge, is_node)
    real = np.flatnonzero(np.asarray(receivers[0]).any(-1))
    goes = [tuple(int(x[0, row].argmax()) for x in (senders, receivers)) for row in real]
    assert goes == [(0, 1), (1, 0), (0, 0), (1, 1)]
    assert not np.asarray(senders[0])[np.setdiff1d(np.arange(7), real)].any()
    assert np.abs(edges[0, 0] - edges[0, 2]).max() > 1e-3  # an own embedding for either way


def test_graph_attention_round_equals_its_equation():
    made = Messages.create(jax.random.key(1))
    draw = np.random.default_rng(0)
    nodes = draw.normal(size=(1, 3, WIDTH)).astype(np.float32)
    edges = draw.normal(size=(1, 4, WIDTH)).astype(np.float32)
    goes = [(0, 1), (2, 1), (1, 1)]  # the fourth message is padding
    senders, receivers = np.zeros((2, 1, 4, 3), np.float32)
    for index, (source, target) in enumerate(goes):
        senders[0, index, source] = receivers[0, index, target] = 1.0

    def layer(name, x):
        return x @ np.asarray(made.layers[name].weight) + np.asarray(made.layers[name].bias)

    expected = nodes[0] + layer("merge", np.zeros((3, WIDTH)))
    attention, parts = np.asarray(made.attention), []
    for head in range(HEADS):
        own = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        scores, values = [], []
        for index, (source, target) in enumerate(goes):
            x = layer("sender", nodes[0, source]) + layer("receiver", nodes[0, target])
            x = (x + edges[0, index])[own]
            scores.append(attention[head] @ np.where(x > 0.0, x, 0.2 * x))
            values.append((layer("value", nodes[0, source]) + edges[0, index])[own])
        weights = np.exp(np.array(scores) - max(scores))
        parts.append(weights / weights.sum() @ np.array(values))
    expected[1] = nodes[0, 1] + layer("merge", np.concatenate(parts))
    found = made(*map(jnp.asarray, (nodes, senders, receivers, edges)))
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-5)


def test_graph_attention_handles_graphs_without_edges_or_features():
    bare, chosen = spaces.Graph(NODE, None), spaces.Graph(spaces.Discrete(3), spaces.Discrete(2))
    alone = GraphInstance(np.ones((2, 2), np.float32), None, None)
    assert read(alone, 6, None, bare).shape == (128,)
    linked = alone._replace(edge_links=np.array([[0, 1]]))
    assert np.abs(read(alone, 6, 4, bare) - read(linked, 6, 4, bare)).max() > 1e-3
    kinds = GraphInstance(np.array([2, 0]), np.array([1]), np.array([[0, 1]]))
    assert read(kinds, 6, 8, chosen).shape == (128,)
    none = GraphInstance(np.zeros((0, 2), np.float32), None, None)
    np.testing.assert_array_equal(read(none), np.zeros(128))


def test_padded_graph_observation_refuses_what_does_not_fit():
    env = PaddedObservations(Neighbours(), 4, 2)
    for instance, said in (
        (graph(5), "holds 5 nodes, more than max_items=4"),
        (graph(3, ((0, 1),) * 3), "holds 3 edges, more than max_edges=2"),
        (graph(3, ((0, 3),)), r"edge 0 links the nodes \[0, 3\], and there are 3 nodes"),
        (graph()._replace(edges=np.ones((1, 1))), "1 edges, 2 links"),
    ):
        with pytest.raises(Exception, match=said):
            env.observation(instance)


def test_padded_graph_env_refuses_missing_or_useless_maxima():
    with pytest.raises(Mistake, match="--env max_edges=64"):
        envs.make(Neighbours, (0,), 1, workers=0)
    with pytest.raises(Mistake, match="--env max_edges=64"):
        envs.make(Neighbours, (0,), 1, workers=0, max_items=8)
    with pytest.raises(Mistake, match="max_edges needs max_items"):
        envs.make(Neighbours, (0,), 1, workers=0, max_edges=8)
    with pytest.raises(Mistake, match="Leave out max_items"):
        envs.make("gymnasium:FrozenLake-v1", (0,), 1, workers=0, max_items=8, max_edges=8)


def test_obs_encoder_reads_a_graph_beside_a_vector():
    space = spaces.Dict(graph=Neighbours.observation_space, speed=spaces.Box(-1.0, 1.0, (3,)))
    env = Neighbours()
    env.observation_space = space
    padded = PaddedObservations(env, 6, 8)
    made = Encoder.create(jax.random.key(0), padded.observation_space)
    assert made.size == 128 + 3
    obs = padded.observation({"graph": graph(), "speed": np.ones(3, np.float32)})
    np.testing.assert_array_equal(made(jax.tree.map(jnp.asarray, obs))[128:], np.ones(3))
    assert describe_observations(made) == [
        "observations graph: graph of up to 6 nodes of 2 -> attention (128 features)",
        "observations speed: vector of 3 -> MLP",
    ]
    statistics = ObsNormaliser.create(padded.observation_space)
    assert [leaf.shape for leaf in jax.tree.leaves(statistics)][:1] != [(6, 2)]


def test_policy_accepts_the_environments_own_graph_observations():
    run = sterling.train(
        "ppo", Neighbours, steps=16, envs=2, length=4, minibatch=8, epochs=1, width=4, workers=0,
        max_items=5, max_edges=4, evaluate_episodes=0, preset=False,
    )  # fmt: skip
    env = Neighbours()
    obs, _ = env.reset(seed=0)
    padded = PaddedObservations(env, 5, 4).observation(obs)
    assert run.policy(obs) == run.policy(padded)
    with pytest.raises(Mistake, match="holds 6 nodes, more than max_items=5"):
        run.policy(graph(6))


@pytest.mark.slow
def test_ppo_with_graph_attention_learns_from_neighbours():
    run = sterling.train(
        "ppo", Neighbours, steps=40_000, envs=32, length=32, minibatch=256, epochs=4, lr=1e-3,
        width=64, workers=0, max_items=5, max_edges=4, preset=False, evaluate_episodes=200,
    )  # fmt: skip
    assert run.result["final"]["return"]["estimate"] > 0.95


def test_padded_sequence_items_may_be_dicts():
    class Words(Neighbours):
        observation_space = spaces.Sequence(
            spaces.Dict(kind=spaces.Discrete(3), size=spaces.Box(0.0, 1.0, (2,), np.float32))
        )

    env = PaddedObservations(Words(), 4)
    item = {"kind": 1, "size": np.array([0.5, 0.25], np.float32)}
    obs = env.observation((item, item))
    assert env.observation_space.contains(obs)
    np.testing.assert_array_equal(obs["padded_items"][1], [0.0, 1.0, 0.0, 0.5, 0.25])
