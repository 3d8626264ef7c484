"""Implicit quantile networks (Dabney 2018, arXiv:1806.06923), for one choice among several.

    quantile    theta_tau(s, a) = f(psi(s) * phi(tau))_a                               (section 3.1)
                phi_j(tau) = relu(sum_{i<n} cos(pi i tau) w_ij + b_j)                  (eq. 4)
    value       Q(s, a) = mean_k theta_tau~k(s, a),            k = 1 ... K
    targets     y_j = r + g theta'_tau'j(s', a*),  a* = argmax_a Q'(s', a),   j = 1 ... N'
    double      a* = argmax_a Q(s', a)             (van Hasselt 2016, eq. 4)
    loss        L = E[ w sum_i mean_j rho_tau_i(y_j - theta_tau_i(s, a)) ],  i = 1 ... N   (eq. 3)
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)

All tau are drawn from U(0, 1), anew for every row. rho_tau is the quantile Huber loss with
threshold ``huber``; g is gamma times the environment's discount, and y has the rewards of
``n_step`` steps; w is 1, or prioritised replay's importance weight. The target network, epsilon and
the treatment of forbidden actions are dqn's. psi is the convolutions, or for vectors the first
hidden layer; f is the layers behind it.

Deviations from the paper: in evaluation and for ``value`` tau~ are the middles of K equal shares,
so that neither is random; epsilon is annealed over a share of the run's updates; time limits
bootstrap from the true successor. ``double``, ``n_step`` and ``priority`` are off by default.
With ``priority`` a row's TD error is that of the means.
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
    """Defaults are those of the paper for Atari games; N, N' and K are Dopamine's."""

    lr: NotNegative = 5e-5  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    adam_eps: NotNegative = 3.125e-4  # added to the root in Adam's denominator (0.01 / 32)
    gamma: Share = 0.99  # discount per step
    quantiles: Count = 64  # N: quantiles of a prediction
    target_quantiles: Count = 64  # N': quantiles of a target
    policy_quantiles: Count = 32  # K: quantiles whose mean is Q
    cosines: Count = 64  # n: cosines that describe a tau
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
    layer_norm: bool = False  # normalise the hidden layers behind psi


class ImplicitNetwork(eqx.Module):
    """theta_tau(s, .), the quantile tau of every action's return."""

    torso: Encoder
    psi: MLP | None  # None: the encoder's features themselves
    phi: MLP
    quantile: MLP  # f
    actions: Actions = eqx.field(static=True)

    def __call__(
        self, obs: Obs, shares: Float[Array, "... tau"]
    ) -> Float[Array, "... actions tau"]:
        """Return theta of every action and tau."""
        features = self.torso(obs) if self.psi is None else self.psi(self.torso(obs))
        count = self.phi.layers[0].weight.shape[0]
        waves = jnp.arange(count, dtype=jnp.float32).reshape(*(1,) * shares.ndim, -1)
        joined = features[..., None, :] * self.phi(jnp.cos(jnp.pi * waves * shares[..., None]))
        return jnp.swapaxes(self.quantile(joined), -1, -2)


class State(eqx.Module):
    """Everything that changes during training."""

    net: ImplicitNetwork
    target: ImplicitNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice."""
    actions = supported_actions("iqn", spec.action, ("discrete",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth))
    psi = None
    if torso.is_flat and len(sizes) > 1:
        psi = MLP.uniform(random_keys.fold(key, "psi"), sizes[:2], config.activation, True)
        sizes = sizes[1:]
    phi = MLP.uniform(random_keys.fold(key, "phi"), (config.cosines, sizes[0]), "relu", True)
    own_key, norm = random_keys.fold(key, "quantile"), config.layer_norm
    f = MLP.uniform(own_key, (*sizes, actions.outputs), config.activation, layer_norm=norm)
    net = ImplicitNetwork(torso, psi, phi, f, actions)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
    )


def q_values(
    net: ImplicitNetwork, obs: Obs, count: int, key: Key[Array, ""] | None = None
) -> Float[Array, "... actions"]:
    """Return Q, the mean of ``count`` quantiles at tau~ drawn from ``key``; without a key at the
    middles of equal shares."""
    rows = jax.eval_shape(net.torso, obs).shape[:-1]
    shares = jnp.broadcast_to(quantile_middles(count), (*rows, count))
    return net(obs, shares if key is None else jax.random.uniform(key, shares.shape)).mean(-1)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` by random tau~, and with probability epsilon a
    random allowed action."""
    shares_key = random_keys.fold(key, "shares") if explore else None
    q = q_values(state.net, obs, state.config.policy_quantiles, shares_key)
    return dqn.act_by_values(state, q, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    q = q_values(state.net, obs, state.config.policy_quantiles)
    return dqn.greedy_log_prob(state.net.actions, q, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a), the expected return of the greedy policy."""
    q = q_values(state.net, obs, state.config.policy_quantiles)
    return dqn.mask_forbidden(q, obs, state.net.actions.sizes).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    config = state.config
    y = targets(state, batch, key)
    shape = (len(batch.reward), config.quantiles)
    shares = jax.random.uniform(random_keys.fold(key, "now"), shape)
    grad = jax.grad(loss, has_aux=True)
    grads, (metrics, error) = grad(state.net, batch, y, shares, config)
    learned = dqn.descend_q(state, grads, config.adam_eps)
    metrics |= {"loss/grad_norm": global_norm(grads), "policy/epsilon": dqn.epsilon(state)}
    return learned, Signals(metrics, {"td_error": error})


def targets(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch tau"]:
    """Return the y_j of the module docstring."""
    config, obs = state.config, batch.next_obs
    chooser = state.net if config.double else state.target
    q = q_values(chooser, obs, config.policy_quantiles, random_keys.fold(key, "choice"))
    best = dqn.mask_forbidden(q, obs, chooser.actions.sizes).argmax(-1)
    shape = (len(best), config.target_quantiles)
    shares = jax.random.uniform(random_keys.fold(key, "next"), shape)
    following = outputs_of_action(state.target(obs, shares), best)
    return td_target(batch.reward[:, None], config.gamma * batch.discount[:, None], following)


def loss(
    net: ImplicitNetwork,
    batch: Record,
    y: Float[Array, "batch target"],
    shares: Float[Array, "batch tau"],
    config: Config,
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L of the module docstring, metrics, and each row's TD error of the means."""
    theta = outputs_of_action(net(batch.obs, shares), batch.action)
    each = config.quantiles * quantile_huber(theta, y, shares, config.huber)
    weight = batch.extras.get("weight", jnp.ones_like(batch.reward))
    total = masked_mean(weight * each, batch.mask)
    q = theta.mean(-1)
    metrics = {"loss/value": total, "value/q": masked_mean(q, batch.mask)}
    return total, (metrics, y.mean(-1) - q)
