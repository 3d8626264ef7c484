"""Rainbow (Hessel 2018, arXiv:1710.02298), for one choice among several.

    value       Q(s, a) = sum_i z_i p_i(s, a),   z_i = v_min + i dz,   i = 0 ... N - 1
    dueling     log p_i(s, a) = V_i(s) + A_i(s, a) - mean_a A_i(s, a) + constant      (page 3)
    targets     m_i = sum_j [1 - |clip(R + g z_j, v_min, v_max) - z_i| / dz]_0^1 p'_j(s_n, a*; e')
    double      a* = argmax_a Q(s_n, a; e'')
    loss        L = E[ - w sum_i m_i log p_i(s, a; e) ],   w = (N p)^-b
    priority    KL(m || p)^omega
    behaviour   argmax_a Q(s, a; e), with new noise e in every step and environment

R is the sum of ``n_step`` discounted rewards, g the discount after them. All linear layers have
factorised Gaussian noise (Fortunato 2018, arXiv:1706.10295): an update draws three, e for p, e' for
the target network p' and e'' for the choice of a*, each the same for all rows; evaluation uses the
mean weights. The loss and the projection are c51's, the target network is dqn's.

Deviations from the paper: the exponent b of the importance weights is constant (the paper anneals
it from 0.4 to 1), as in Dopamine; time limits bootstrap from the true successor; evaluation is
without noise and without random actions.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.algorithms.q_learning import c51
from sterling.equations.value_losses import outputs_of_action
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Finite,
    Limit,
    NotNegative,
    Share,
    Sizes,
    Whole,
)
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, global_norm
from sterling.nets.special_layers.noisy_linear import NoisyMLP
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper (table 1), with 4 frames to a step."""

    lr: NotNegative = 6.25e-5  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    adam_eps: NotNegative = 1.5e-4  # added to the root in Adam's denominator
    gamma: Share = 0.99  # discount per step
    n_step: Count = 3  # rewards summed before bootstrapping
    atoms: Count = 51  # of every action's return
    v_min: Finite = -10.0  # lowest return that can be represented
    v_max: Finite = 10.0  # highest return that can be represented
    sigma: NotNegative = 0.5  # initial deviation of weights, times sqrt(inputs)
    batch: Count = 32  # transitions per update
    collect: Count = 4  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 20_000  # steps with random actions before the first update
    target_period: Count = 2_000  # updates between changes of the target network
    tau: Share = 1.0  # share by which the target network moves at each change; 1: copy it
    priority: NotNegative | None = 0.5  # omega: exponent of prioritised replay; None: uniform
    correction: Share = 0.4  # b: exponent of prioritised replay's importance weights (constant)
    max_grad_norm: Limit = float("inf")  # gradients are clipped to this global norm
    width: Sizes = 512  # units per hidden layer of each stream, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers


class RainbowNetwork(eqx.Module):
    """The logits of p(s, .), a distribution over atoms for every action, of two noisy streams."""

    torso: Encoder
    value: NoisyMLP
    advantage: NoisyMLP  # of the first action's atoms, then of the second's ...
    actions: Actions = eqx.field(static=True)

    def __call__(
        self, obs: Obs, key: Key[Array, ""] | None = None, shared: bool = True
    ) -> Float[Array, "... actions atom"]:
        """Return the logits of every action, with noise from ``key``: see NoisyMLP."""
        return noisy_logits(self, self.torso(obs), key, shared)


def noisy_logits(
    net: Any, features: Float[Array, "... features"], key: Key[Array, ""] | None, shared: bool
) -> Float[Array, "... actions atom"]:
    """Return the logits of a network with the streams of RainbowNetwork, given what they read."""
    names = ("value", "advantage")
    keys = [None if key is None else random_keys.fold(key, name) for name in names]
    value, advantage = (
        net.value(features, keys[0], shared),
        net.advantage(features, keys[1], shared),
    )
    return dueling_logits(value, advantage, net.actions.outputs)


def dueling_logits(
    value: Float[Array, "... atom"], advantage: Float[Array, "... numbers"], actions: int
) -> Float[Array, "... actions atom"]:
    """Return V_i + A_i - mean_a A_i; ``advantage`` has the atoms of the first action, then those
    of the second ..."""
    each = advantage.reshape(*advantage.shape[:-1], actions, -1)
    return value[..., None, :] + each - jnp.mean(each, -2, keepdims=True)


class State(eqx.Module):
    """Everything that changes during training."""

    net: RainbowNetwork
    target: RainbowNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a prioritised replay buffer, with sums of ``n_step`` rewards."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice, and for atoms
    that are no interval."""
    actions = supported_actions("rainbow", spec.action, ("discrete",), ONLINE)
    c51.check_support(config)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)

    def stream(name: str, outputs: int) -> NoisyMLP:
        sizes, own_key = (torso.size, *hidden, outputs), random_keys.fold(key, name)
        norm, kind = config.layer_norm, config.activation
        return NoisyMLP.create(own_key, sizes, config.sigma, kind, layer_norm=norm)

    streams = stream("value", config.atoms), stream("advantage", actions.outputs * config.atoms)
    net = RainbowNetwork(torso, *streams, actions)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
    )


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action by mean weights; with ``explore`` by weights with noise, which is
    independent in each environment. Here, in ``log_prob`` and in ``value`` ``state`` may be that of
    any algorithm whose network is called as this one."""
    noise = random_keys.fold(key, "noise") if explore else None
    q = c51.q_values(state.net(obs, noise, False), state.config)
    actions = state.net.actions
    return actions.distribution(dqn.mask_forbidden(q, obs, actions.sizes)).mode(), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the policy by mean weights: 0 for the best action, -inf for others."""
    q = c51.q_values(state.net(obs), state.config)
    return dqn.greedy_log_prob(state.net.actions, q, obs, action)


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a) by mean weights, the expected return of the greedy policy."""
    q = c51.q_values(state.net(obs), state.config)
    return dqn.mask_forbidden(q, obs, state.net.actions.sizes).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    config = state.config
    following = state.target(batch.next_obs, random_keys.fold(key, "next"))
    chooser = state.net(batch.next_obs, random_keys.fold(key, "choice"))
    m = c51.targets(following, c51.q_values(chooser, config), batch, config)
    grad, noise = jax.grad(loss, has_aux=True), random_keys.fold(key, "now")
    grads, (metrics, divergence) = grad(state.net, batch, m, config, noise)
    learned = dqn.descend_q(state, grads, config.adam_eps)
    metrics["loss/grad_norm"] = global_norm(grads)
    return learned, Signals(metrics, {"td_error": divergence})


def loss(
    net: RainbowNetwork,
    batch: Record,
    m: Float[Array, "batch atom"],
    config: Config,
    noise: Key[Array, ""],
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L of the module docstring, metrics, and each row's KL(m || p)."""
    logits = outputs_of_action(net(batch.obs, noise), batch.action)
    return c51.distribution_loss(logits, batch, m, config)
