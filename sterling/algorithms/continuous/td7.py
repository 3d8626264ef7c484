"""TD7 (Fujimoto 2023, arXiv:2306.02451): TD3 with learned embeddings of states and actions.

    embedding   z^s   = norm f(s),   z^sa = g(z^s, a),   norm x = x / mean |x|
                L_z   = E[ mean (g(z^s, a) - z^s')^2 ],             z^s' a constant
    action      a'    = clip(mu'(s', z'^s') + clip(e', -c, c), -1, 1),    e' ~ N(0, sigma'^2)
    target      y     = r + g clip(min_i Q'_i(s', a', z'^s'a', z'^s'), low, high)
    critics     L_Q   = sum_i E[ w huber(y - Q_i(s, a, z^sa, z^s)) ]
    priority    p     = max(max_i |y - Q_i|, 1)^alpha               (LAP, Fujimoto 2020)
    actor       L_mu  = -E[ mean_i Q_i(s, mu(s, z^s), z^sa, z^s) ]  (every ``delay`` updates)
    behaviour   a     = clip(mu(s, z^s) + e, -1, 1),                e ~ N(0, sigma^2)

g before a value is gamma times the environment's discount. Critics and actor read the embeddings of
fixed encoders. Every ``target_period`` updates everything moves on by one: the targets mu', Q' and
z' become copies of mu, Q and the fixed encoders, these become copies of the encoders that learn,
and low and high become the least and largest y so far (before the first time both are 0). mu and
each Q_i pass their own input through one linear layer and norm before the embeddings join it.

Deviations from the paper: there are no policy checkpoints (section 4.2), which need updates after
whole episodes of one policy, while here fixed numbers of steps and updates alternate; ``--keep
best`` keeps the best policy by its evaluations instead. New rows get the largest priority so far,
which is never lowered (the authors take that of the buffer every ``target_period`` updates). The
loss is Huber's, which beyond an error of 1 differs from theirs by a constant. Images are encoded
by a torso that is a part of f. The variant for datasets (with behaviour cloning) is not included.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import td3
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import huber, td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole, Width
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.encoding.state_action_embedding import (
    EmbeddedCritics,
    EmbeddedNetwork,
    StateActionEmbedding,
)
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

THRESHOLD = 1.0  # error beyond which the loss is linear, and below which priorities are equal


@config
class Config:
    """Defaults are the paper's (appendix D), in units of actions."""

    lr: NotNegative = 3e-4  # Adam's step size, for encoders, critics and actor
    gamma: Share = 0.99  # discount per step
    target_period: Count = 250  # updates between changes of targets and fixed encoders
    exploration_noise: NotNegative = 0.1  # sigma: standard deviation of exploration noise
    target_noise: NotNegative = 0.2  # sigma': standard deviation of the noise on target actions
    noise_clip: Width = 0.5  # c: bound of the noise on target actions
    delay: Count = 2  # critic updates per update of the actor
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 25_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = 0.4  # alpha: exponent of prioritised replay; None: uniform
    correction: Share = 0.0  # exponent of the importance weights w (LAP: 0, so that w = 1)
    embedding: Count = 256  # numbers of an embedding, and units of first layers
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "elu"  # of encoders and critics: tanh, relu, silu, elu or gelu
    actor_activation: Activation = "relu"  # of the actor
    layer_norm: bool = False  # normalise the critics' hidden layers


class Actor(eqx.Module):
    """mu(s, z^s), flat, in (-1, 1)."""

    net: EmbeddedNetwork
    actions: Actions = eqx.field(static=True)

    def __call__(
        self, features: Float[Array, "... features"], state: Float[Array, "... embedding"]
    ) -> Float[Array, "... n"]:
        """Return tanh of the network's output."""
        return jnp.tanh(self.net(features, state))


class Nets(eqx.Module):
    """Actor, critics, and the fixed encoders that both read."""

    embedding: StateActionEmbedding
    actor: Actor
    critics: EmbeddedCritics

    def action(self, obs: Obs) -> Float[Array, "... n"]:
        """Return mu(s, z^s)."""
        return self.actor(*self.embedding(obs))

    def q_values(self, obs: Obs, action: Float[Array, "... n"]) -> Float[Array, "2 ..."]:
        """Return Q_1(s, a) and Q_2(s, a)."""
        return self.critics(self.embedding, obs, action)


class State(eqx.Module):
    """Everything that changes during training."""

    embedding: StateActionEmbedding  # the encoders that learn
    nets: Nets
    target: Nets
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # encoders, critics, actor
    lowest: Float[Array, ""]  # y so far
    highest: Float[Array, ""]
    low: Float[Array, ""]  # bounds of target values
    high: Float[Array, ""]
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a prioritised or uniform replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    actions = supported_actions("td7", spec.action, ("box",), ONLINE)
    embedding_key, actor_key, critic_key = (
        random_keys.fold(key, name) for name in ("embedding", "actor", "critics")
    )
    embedding = StateActionEmbedding.create(embedding_key, spec, actions.outputs, config)
    torso = embedding.torso
    sizes = (*torso.hidden_sizes(config.width, config.depth), actions.outputs)
    kind = (torso.size, (config.embedding,), sizes, config.actor_activation)
    actor = Actor(EmbeddedNetwork.create(actor_key, *kind), actions)
    critics = EmbeddedCritics.create(critic_key, embedding, actions.outputs, config)
    nets = Nets(embedding, actor, critics)
    nets, copy, learning = (jax.tree.map(jnp.copy, x) for x in (nets, nets, embedding))
    optimisers = adam().init(embedding), adam().init(nets.critics), adam().init(nets.actor)
    bounds = (jnp.asarray(jnp.inf), jnp.asarray(-jnp.inf), jnp.zeros(()), jnp.zeros(()))
    return State(learning, nets, copy, optimisers, *bounds, jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds."""
    return td3.act(state, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    return state.nets.q_values(obs, state.nets.action(obs)).min(0)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return state.nets.q_values(obs, action.reshape(len(action), -1)).min(0)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update encoders and critics once on transitions ``(batch, ...)``, every ``delay``-th time
    also the actor, and every ``target_period``-th time the targets and fixed encoders."""
    config, (embedding_state, critic_state, actor_state) = state.config, state.optimisers
    y = target(state, batch, key)
    prediction, grads = jax.value_and_grad(embedding_loss)(state.embedding, batch)
    direction, embedding_state = adam().update(grads, embedding_state)
    embedding = descend(state.embedding, direction, config.lr)
    critic_grad = jax.grad(critic_loss, has_aux=True)
    grads, (metrics, error) = critic_grad(state.nets.critics, state.nets.embedding, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    nets = dataclasses.replace(
        state.nets, critics=descend(state.nets.critics, direction, config.lr)
    )
    updates = state.updates + 1
    due = jnp.mod(updates, config.delay) == 0
    actor, actor_state = jax.lax.cond(
        due,
        lambda: updated_actor(nets, actor_state, batch, config),
        lambda: (nets.actor, actor_state),
    )
    nets = dataclasses.replace(nets, actor=actor)
    learned = State(
        *(embedding, nets, state.target, (embedding_state, critic_state, actor_state)),
        jnp.minimum(state.lowest, jnp.where(batch.mask, y, jnp.inf).min()),
        jnp.maximum(state.highest, jnp.where(batch.mask, y, -jnp.inf).max()),
        *(state.low, state.high, updates, config),
    )
    due = jnp.mod(updates, config.target_period) == 0
    learned = jax.lax.cond(due, lambda: moved_on(learned), lambda: learned)
    metrics |= {"loss/embedding": prediction}
    return learned, Signals(metrics, {"td_error": jnp.maximum(error, THRESHOLD)})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    action = td3.target_action(state, batch, key)
    least = state.target.q_values(batch.next_obs, action).min(0)
    within = jnp.clip(least, state.low, state.high)
    return td_target(batch.reward, state.config.gamma * batch.discount, within)


def moved_on(state: State) -> State:
    """Return the state whose targets, fixed encoders and bounds are those that came after."""
    return dataclasses.replace(
        state,
        nets=dataclasses.replace(state.nets, embedding=state.embedding),
        target=state.nets,
        low=state.lowest,
        high=state.highest,
    )


def updated_actor(
    nets: Nets, optimiser: optax.OptState, batch: Record, config: Config
) -> tuple[Actor, optax.OptState]:
    """Return the actor after one update, and its optimiser."""
    grads = jax.grad(actor_loss)(nets.actor, nets, batch)
    direction, optimiser = adam().update(grads, optimiser)
    return descend(nets.actor, direction, config.lr), optimiser


def embedding_loss(embedding: StateActionEmbedding, batch: Record) -> Float[Array, ""]:
    """Return L_z of the module docstring."""
    _, now = embedding(batch.obs)
    _, following = embedding(batch.next_obs)
    predicted = embedding.of_pair(now, batch.action.reshape(batch.mask.size, -1))
    error = jnp.square(predicted - jax.lax.stop_gradient(following))
    return masked_mean(error.mean(-1), batch.mask)


def critic_loss(
    critics: EmbeddedCritics,
    embedding: StateActionEmbedding,
    batch: Record,
    y: Float[Array, "batch"],
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and the larger critic's |TD error| per row."""
    q = critics(embedding, batch.obs, batch.action.reshape(batch.mask.size, -1))
    weight = batch.extras.get("weight", jnp.ones_like(y))
    loss = masked_mean(weight * huber(y[None] - q, THRESHOLD).sum(0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(q[0], batch.mask)}
    return loss, (metrics, jnp.abs(y[None] - q).max(0))


def actor_loss(actor: Actor, nets: Nets, batch: Record) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    action = actor(*nets.embedding(batch.obs))
    return -masked_mean(nets.q_values(batch.obs, action).mean(0), batch.mask)
