"""Parallelised Q-network (PQN; Gallici 2025, arXiv:2407.04811).

    return      G_t  = r_t + g_t ( lambda G_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a) )
    loss        L    = 1/2 E[ (G_t - Q(s_t, a_t))^2 ]
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)

Q-learning on fresh rollouts of many environments, without a replay buffer and without a target
network, whose part layer normalisation of the hidden layers takes. g is gamma times the
environment's discount. The returns are Peng's Q(lambda): traces are not cut at random actions, so
Q is partly the value of the policy that explores. G bootstraps where a rollout or an episode ends,
at a time limit from the true successor. Returns are computed once per rollout with the Q that
acted, and are constants in ``epochs`` passes of minibatches. The optimiser is RAdam (Liu 2020,
arXiv:1908.03265). Forbidden actions have no part in the maximum. Several choices at once are
learned as in dqn.

Deviations from the paper: initial weights are those of dqn; a convolution itself is not normalised,
only the hidden layers behind it; rewards are not scaled (the authors scale CartPole's by 0.1).
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
from sterling.algorithms.online import dqn, ppo
from sterling.equations.factored_values import max_q, q_of_choices
from sterling.equations.masked_average import masked_mean
from sterling.equations.minibatches import check_minibatch, minibatch_indices
from sterling.equations.returns import continues, lambda_returns
from sterling.field_types import Activation, Count, Depth, Limit, NotNegative, Share, Sizes
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import descend, global_norm, radam
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are the authors' for MinAtar, where they have 128 envs."""

    lr: NotNegative = 5e-4  # RAdam's initial step size
    anneal: bool = True  # step size falls linearly to 0 over the run
    gamma: Share = 0.99  # discount per step
    q_lambda: Share = 0.65  # lambda of the returns
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.05  # final epsilon
    exploration_fraction: Share = 0.1  # share of the planned updates over which epsilon is annealed
    max_grad_norm: Limit = 10.0  # gradients are clipped to this global norm
    length: Count = 32  # steps of each env per iteration
    minibatch: Count = 128  # rows per update; an epoch's last update may have fewer
    epochs: Count = 2  # passes over a rollout
    width: Sizes = 128  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = True  # normalise the hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    net: dqn.QNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not choices, and for a
    ``minibatch`` larger than a rollout."""
    actions = supported_actions("pqn", spec.action, ("discrete", "multi"), ONLINE)
    rows = spec.envs * config.length
    check_minibatch(config.minibatch, rows)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth), actions.outputs)
    own_key, norm = random_keys.fold(key, "advantage"), config.layer_norm
    q = MLP.uniform(own_key, sizes, config.activation, layer_norm=norm)
    net = dqn.QNetwork(torso, q, None, actions)
    planned = jnp.asarray(float(spec.iterations * config.epochs * -(-rows // config.minibatch)))
    return State(net, radam().init(net), jnp.zeros((), jnp.int32), planned, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and probability epsilon a random allowed one."""
    return dqn.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    return dqn.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a), the expected return of the greedy policy."""
    return dqn.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make several epochs of minibatch updates on one rollout ``(time, env, ...)``."""
    config, count = state.config, batch.mask.size
    rows, error = rollout_rows(state, batch)

    def update(carry: Any, index: Int[Array, "minibatch"]) -> tuple[Any, Any]:
        minibatch = jax.tree.map(lambda x: x[index], rows)
        if count % config.minibatch:  # otherwise there is no padding
            minibatch["mask"] &= index >= 0
        return gradient_step(state, carry, minibatch)

    order = minibatch_indices(key, count, config.minibatch, config.epochs)
    start = (state.net, state.optimiser, state.updates)
    (net, optimiser, updates), metrics = jax.lax.scan(update, start, order)
    metrics = jax.tree.map(lambda x: x.mean(), metrics) | {"policy/epsilon": dqn.epsilon(state)}
    learned = State(net, optimiser, updates, state.planned, config)
    return learned, Signals(metrics, {"td_error": error})


def rollout_rows(state: State, batch: Record) -> tuple[dict[str, Any], Float[Array, "time env"]]:
    """Return the rollout as flat rows with their returns G, and each row's G - Q(s, a). A row's
    ``next_obs`` is the next row's ``obs``, so values are computed once per row."""
    net, obs = state.net, ppo.all_observations(batch)
    q = net(obs)
    best = max_q(dqn.mask_forbidden(q, obs, net.actions.sizes), net.actions.sizes)
    discount, trace = state.config.gamma * batch.discount, continues(batch.last, batch.mask)
    target = lambda_returns(batch.reward, discount, best[1:], trace, lam=state.config.q_lambda)
    error = target - q_of_choices(q[:-1], batch.action, net.actions.sizes)
    rows = {"obs": batch.obs, "action": batch.action, "target": target, "mask": batch.mask}
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows), error


def gradient_step(state: State, carry: Any, rows: dict[str, Any]) -> tuple[Any, dict[str, Array]]:
    """Make one update; ``carry`` is the network, the optimiser and the updates made before."""
    config, (net, optimiser, updates) = state.config, carry
    grads, metrics = jax.grad(loss, has_aux=True)(net, rows)
    direction, optimiser = radam(max_norm=config.max_grad_norm).update(grads, optimiser)
    progress = updates.astype(jnp.float32) / state.planned
    net = descend(net, direction, config.lr * (1.0 - progress if config.anneal else 1.0))
    return (net, optimiser, updates + 1), {**metrics, "loss/grad_norm": global_norm(grads)}


def loss(
    net: dqn.QNetwork, rows: dict[str, Any]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L of the module docstring on a minibatch of rows, and metrics."""
    q = q_of_choices(net(rows["obs"]), rows["action"], net.actions.sizes)
    total = masked_mean(0.5 * jnp.square(rows["target"] - q), rows["mask"])
    return total, {"loss/value": total, "value/q": masked_mean(q, rows["mask"])}
