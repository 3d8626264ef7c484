"""Quantile regression DQN (Dabney 2018, arXiv:1710.10044), for one choice among several.

    value       Q(s, a) = mean_m theta_m(s, a),    m = 1 ... M                       (eq. 1)
    targets     y_k = r + g theta'_k(s', a*),      a* = argmax_a Q'(s', a)           (algorithm 1)
    double      a* = argmax_a Q(s', a)             (van Hasselt 2016, eq. 4)
    loss        L = E[ w sum_m mean_k rho_m(y_k - theta_m(s, a)) ]                   (eq. 10)
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)

rho_m is the quantile Huber loss at (2 m - 1) / (2 M) with threshold ``huber``; g is gamma times the
environment's discount, and y has the rewards of ``n_step`` steps; w is 1, or prioritised replay's
importance weight. The target network, epsilon and the treatment of forbidden actions are dqn's.

Deviations from the paper: epsilon is annealed over a share of the run's updates, not over a million
frames; time limits bootstrap from the true successor. ``double``, ``n_step`` and ``priority``
are off by default. With ``priority`` a row's TD error is that of the mean.
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
from sterling.equations.quantile_losses import quantile_huber, quantile_middles
from sterling.equations.value_losses import outputs_of_action, td_target
from sterling.field_types import Activation, Count, Depth, Limit, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, global_norm
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper for Atari games (section 5, "Best of Atari")."""

    lr: NotNegative = 5e-5  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    adam_eps: NotNegative = 3.125e-4  # added to the root in Adam's denominator (0.01 / 32)
    gamma: Share = 0.99  # discount per step
    quantiles: Count = 200  # of every action's return
    huber: Limit = 1.0  # kappa: error beyond which the loss is linear; inf: always half the square
    batch: Count = 32  # transitions per update
    collect: Count = 4  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 50_000  # steps with random actions before the first update
    target_period: Count = 10_000  # updates between changes of the target network
    tau: Share = 1.0  # share by which the target network moves at each change; 1: copy it
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.01  # final epsilon
    exploration_fraction: Share = 0.1  # share of the planned updates in which epsilon falls
    double: bool = False  # choose the next action by the online network (double DQN)
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    max_grad_norm: Limit = float("inf")  # gradients are clipped to this global norm
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers


class QuantileNetwork(eqx.Module):
    """The quantiles theta(s, .) of every action's return."""

    torso: Encoder
    quantiles: MLP  # those of the first action, then those of the second ...
    actions: Actions = eqx.field(static=True)

    def all_quantiles(self, obs: Obs) -> Float[Array, "... actions quantile"]:
        """Return theta of every action."""
        found = self.quantiles(self.torso(obs))
        return found.reshape(*found.shape[:-1], self.actions.outputs, -1)

    def __call__(self, obs: Obs) -> Float[Array, "... actions"]:
        """Return Q of every action, the mean of its quantiles."""
        return jnp.mean(self.all_quantiles(obs), -1)


class State(eqx.Module):
    """Everything that changes during training."""

    net: QuantileNetwork
    target: QuantileNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice."""
    actions = supported_actions("qr-dqn", spec.action, ("discrete",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    sizes = (torso.size, *hidden, actions.outputs * config.quantiles)
    own_key = random_keys.fold(key, "quantiles")
    quantiles = MLP.uniform(own_key, sizes, config.activation, layer_norm=config.layer_norm)
    net = QuantileNetwork(torso, quantiles, actions)
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
    """Return max_a Q(s, a), the expected return of the greedy policy."""
    return dqn.mask_forbidden(state.net(obs), obs, state.net.actions.sizes).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    config = state.config
    y = targets(state, batch)
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.net, batch, y, config)
    learned = dqn.descend_q(state, grads, config.adam_eps)
    metrics |= {"loss/grad_norm": global_norm(grads), "policy/epsilon": dqn.epsilon(state)}
    return learned, Signals(metrics, {"td_error": error})


def targets(state: State, batch: Record) -> Float[Array, "batch quantile"]:
    """Return the y_k of the module docstring."""
    quantiles = state.target.all_quantiles(batch.next_obs)
    chooser = state.net if state.config.double else state.target
    q, sizes = chooser(batch.next_obs), chooser.actions.sizes
    best = dqn.mask_forbidden(q, batch.next_obs, sizes).argmax(-1)
    discount = state.config.gamma * batch.discount[:, None]
    return td_target(batch.reward[:, None], discount, outputs_of_action(quantiles, best))


def loss(
    net: QuantileNetwork, batch: Record, y: Float[Array, "batch quantile"], config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L of the module docstring, metrics, and each row's TD error of the mean."""
    theta = outputs_of_action(net.all_quantiles(batch.obs), batch.action)
    shares = jnp.broadcast_to(quantile_middles(config.quantiles), theta.shape)
    each = config.quantiles * quantile_huber(theta, y, shares, config.huber)
    weight = batch.extras.get("weight", jnp.ones_like(batch.reward))
    total = masked_mean(weight * each, batch.mask)
    q = theta.mean(-1)
    metrics = {"loss/value": total, "value/q": masked_mean(q, batch.mask)}
    return total, (metrics, y.mean(-1) - q)
