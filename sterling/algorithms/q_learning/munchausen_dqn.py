"""Munchausen DQN (Vieillard 2020, arXiv:2007.14430), for one choice among several.

    policy      pi(.|s) = softmax(Q'(s, .) / tau)
    target      y = r + alpha [tau log pi(a|s)]_l0^0
                    + g sum_a' pi(a'|s') (Q'(s', a') - tau log pi(a'|s'))             (eq. 2)
    loss        L = E[ huber(y - Q(s, a)) ]
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)

The sum over a' equals tau logsumexp(Q'(s', .) / tau), and tau log pi(a|s) = Q'(s, a) - tau
logsumexp(Q'(s, .) / tau): both are computed so. g is gamma times the environment's discount.
The network, its target Q' and epsilon are dqn's; forbidden actions have probability 0 under pi.

Deviations from the paper: epsilon is annealed over a share of the run's updates, and is 0 in
evaluation; time limits bootstrap from the true successor. The loss is half the square (``huber`` is
infinite), whose step Adam's ``adam_eps`` alone tells from that of the square.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import huber, q_of_action, td_error
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Limit,
    NotNegative,
    Number,
    Positive,
    Share,
    Sizes,
    Whole,
)
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, global_norm
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper for Atari games (appendix B), with 4 frames to a step."""

    lr: NotNegative = 5e-5  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    adam_eps: NotNegative = 3.125e-4  # added to the root in Adam's denominator (0.01 / 32)
    gamma: Share = 0.99  # discount per step
    alpha: Share = 0.9  # share of tau log pi(a|s) that is added to the reward; 0: soft DQN
    temperature: Positive = 0.03  # tau: of the softmax policy
    lowest_bonus: Number = -1.0  # l0: bound of tau log pi(a|s) from below
    batch: Count = 32  # transitions per update
    collect: Count = 4  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 20_000  # steps with random actions before the first update
    target_period: Count = 2_000  # updates between changes of the target network
    tau: Share = 1.0  # share by which the target network moves at each change; 1: copy it
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.01  # final epsilon
    exploration_fraction: Share = 0.1  # share of the planned updates in which epsilon falls
    huber: Limit = float("inf")  # error beyond which the loss is linear; inf: half the square
    max_grad_norm: Limit = float("inf")  # gradients are clipped to this global norm
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    net: dqn.QNetwork
    target: dqn.QNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for single transitions from a uniform replay buffer."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice."""
    actions = supported_actions("munchausen-dqn", spec.action, ("discrete",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    sizes, own_key = (torso.size, *hidden, actions.outputs), random_keys.fold(key, "advantage")
    q = MLP.uniform(own_key, sizes, config.activation, layer_norm=config.layer_norm)
    net = dqn.QNetwork(torso, q, None, actions)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and probability epsilon a random allowed one."""
    return dqn.act_by_values(state, state.net(obs), obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    return dqn.greedy_log_prob(state.net.actions, state.net(obs), obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a): the return with the bonus, in which an action's log-probability counts
    (with ``alpha`` near 1 values of worse actions lie far below)."""
    return dqn.mask_forbidden(state.net(obs), obs, state.net.actions.sizes).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    grad = jax.grad(loss, has_aux=True)
    grads, (metrics, error) = grad(state.net, state.target, batch, state.config)
    learned = dqn.descend_q(state, grads, state.config.adam_eps)
    metrics |= {"loss/grad_norm": global_norm(grads), "policy/epsilon": dqn.epsilon(state)}
    return learned, Signals(metrics, {"td_error": error})


def loss(
    net: dqn.QNetwork, target: dqn.QNetwork, batch: Record, config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L of the module docstring, metrics, and each row's error y - Q(s, a)."""
    old_q = dqn.mask_forbidden(target(batch.obs), batch.obs, net.actions.sizes)
    log_pi = q_of_action(old_q, batch.action) - soft_maximum(old_q, config.temperature)
    bonus = config.alpha * jnp.clip(log_pi, config.lowest_bonus, 0.0)
    next_q = dqn.mask_forbidden(target(batch.next_obs), batch.next_obs, net.actions.sizes)
    following = jax.lax.stop_gradient(soft_maximum(next_q, config.temperature))
    q, reward = q_of_action(net(batch.obs), batch.action), batch.reward + bonus
    error = td_error(q, reward, config.gamma * batch.discount, following)
    total = masked_mean(huber(error, config.huber), batch.mask)
    metrics = {"loss/value": total, "value/q": masked_mean(q, batch.mask)}
    return total, (metrics | {"value/bonus": masked_mean(bonus, batch.mask)}, error)


def soft_maximum(
    q: Float[Array, "... actions"], temperature: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """Return tau logsumexp(q / tau) over actions, which is max q for tau near 0."""
    return temperature * jax.nn.logsumexp(q / temperature, -1)
