"""C51, categorical DQN (Bellemare 2017, arXiv:1707.06887), for one choice among several.

    value       Q(s, a) = sum_i z_i p_i(s, a),   z_i = v_min + i dz,   i = 0 ... N - 1
    targets     m_i = sum_j [1 - |clip(r + g z_j, v_min, v_max) - z_i| / dz]_0^1 p'_j(s', a*),
                a* = argmax_a Q'(s', a)          (eq. 7 and algorithm 1)
    double      a* = argmax_a Q(s', a)           (van Hasselt 2016, eq. 4)
    loss        L = E[ - w sum_i m_i log p_i(s, a) ]
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)

p is a softmax over N = ``atoms`` outputs for every action; g is gamma times the environment's
discount, and r has the rewards of ``n_step`` steps; w is 1, or prioritised replay's importance
weight. The target network, epsilon and the treatment of forbidden actions are dqn's. Returns
outside of [v_min, v_max] cannot be represented: choose these bounds for the environment.

Deviations from the paper: epsilon is annealed over a share of the run's updates, not over a million
frames, and is 0 in evaluation (the paper: 0.001); time limits bootstrap from the true successor.
``double``, ``n_step`` and ``priority`` are off by default. With ``priority`` a row's TD error is
KL(m || p), as in Rainbow (Hessel 2018).
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
from sterling.equations.categorical_values import (
    cross_entropy,
    entropy,
    expected_value,
    make_support,
    project_onto_support,
)
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import outputs_of_action, td_target
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
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, global_norm
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper for Atari games (section 5)."""

    lr: NotNegative = 2.5e-4  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    adam_eps: NotNegative = 3.125e-4  # added to the root in Adam's denominator (0.01 / 32)
    gamma: Share = 0.99  # discount per step
    atoms: Count = 51  # of every action's return
    v_min: Finite = -10.0  # lowest return that can be represented
    v_max: Finite = 10.0  # highest return that can be represented
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
    priority: NotNegative | None = None  # exponent of prioritised replay (0.5); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    max_grad_norm: Limit = float("inf")  # gradients are clipped to this global norm
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers


class AtomNetwork(eqx.Module):
    """The logits of p(s, .), a distribution over atoms for every action."""

    torso: Encoder
    logits: MLP  # those of the first action, then those of the second ...
    actions: Actions = eqx.field(static=True)

    def __call__(self, obs: Obs) -> Float[Array, "... actions atom"]:
        """Return the logits of every action."""
        found = self.logits(self.torso(obs))
        return found.reshape(*found.shape[:-1], self.actions.outputs, -1)


class State(eqx.Module):
    """Everything that changes during training."""

    net: AtomNetwork
    target: AtomNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice, and for atoms
    that are no interval."""
    actions = supported_actions("c51", spec.action, ("discrete",), ONLINE)
    check_support(config)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    sizes = (torso.size, *hidden, actions.outputs * config.atoms)
    own_key = random_keys.fold(key, "logits")
    logits = MLP.uniform(own_key, sizes, config.activation, layer_norm=config.layer_norm)
    net = AtomNetwork(torso, logits, actions)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
    )


def check_support(config: Any) -> None:
    """Raise :class:`Mistake` if the atoms of a Config with ``atoms``, ``v_min`` and ``v_max`` are
    no interval (bounds that a population varies are not looked at)."""
    if config.atoms < 2:
        raise Mistake(f"atoms={config.atoms} is no distribution. Set atoms to at least 2.")
    low, high = config.v_min, config.v_max
    if all(isinstance(x, int | float) for x in (low, high)) and low >= high:
        raise Mistake(
            f"v_min={low:g} must be below v_max={high:g}. Set them to the returns' range."
        )


def q_values(logits: Float[Array, "... atom"], config: Any) -> Float[Array, "..."]:
    """Return Q, the mean of the distribution over the atoms of ``config``."""
    return expected_value(logits, make_support(config.v_min, config.v_max, config.atoms))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and probability epsilon a random allowed one."""
    return dqn.act_by_values(state, q_values(state.net(obs), state.config), obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    q = q_values(state.net(obs), state.config)
    return dqn.greedy_log_prob(state.net.actions, q, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a), the expected return of the greedy policy."""
    q = q_values(state.net(obs), state.config)
    return dqn.mask_forbidden(q, obs, state.net.actions.sizes).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    config = state.config
    following = state.target(batch.next_obs)
    chooser = state.net(batch.next_obs) if config.double else following
    m = targets(following, q_values(chooser, config), batch, config)
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.net, batch, m, config)
    learned = dqn.descend_q(state, grads, config.adam_eps)
    metrics |= {"loss/grad_norm": global_norm(grads), "policy/epsilon": dqn.epsilon(state)}
    return learned, Signals(metrics, {"td_error": error})


def targets(
    following: Float[Array, "batch actions atom"],
    q: Float[Array, "batch actions"],
    batch: Record,
    config: Any,
) -> Float[Array, "batch atom"]:
    """Return the m_i of the module docstring, given the logits of p'(s', .) and the Q that chooses
    a*."""
    best = dqn.mask_forbidden(q, batch.next_obs, q.shape[-1:]).argmax(-1)
    return projected(outputs_of_action(following, best), batch, config)


def projected(
    logits: Float[Array, "batch atom"], batch: Record, config: Any
) -> Float[Array, "batch atom"]:
    """Return the m_i of the module docstring, given the logits of the p' that is chosen."""
    support = make_support(config.v_min, config.v_max, config.atoms)
    discount = config.gamma * batch.discount[:, None]
    y = td_target(batch.reward[:, None], discount, support[None])
    return project_onto_support(y, jax.nn.softmax(logits), support)


def loss(
    net: AtomNetwork, batch: Record, m: Float[Array, "batch atom"], config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L of the module docstring, metrics, and each row's KL(m || p)."""
    return distribution_loss(outputs_of_action(net(batch.obs), batch.action), batch, m, config)


def distribution_loss(
    logits: Float[Array, "batch atom"], batch: Record, m: Float[Array, "batch atom"], config: Any
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return what ``loss`` returns, given the logits of p(s, a)."""
    each = cross_entropy(m, logits)
    weight = batch.extras.get("weight", jnp.ones_like(batch.reward))
    total = masked_mean(weight * each, batch.mask)
    q = masked_mean(q_values(logits, config), batch.mask)
    return total, ({"loss/value": total, "value/q": q}, each - entropy(m))
