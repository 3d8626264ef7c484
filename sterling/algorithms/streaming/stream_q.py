"""Streaming Q-learning with traces: stream Q(lambda) (Elsayed 2024, arXiv:2410.14606).

    error        delta = r / sd + g max_a Q(s', a) - Q(s, a)
    trace        z     <- gamma lambda z + grad Q(s, a)
    bound        M     = alpha kappa max(|delta|, 1) |z|_1
    update       w     <- w + min(alpha / M, alpha) delta z              (ObGD)
    cut          z     <- 0  after an episode's last step, and after an action that was not greedy
    behaviour    a uniformly at random with probability epsilon, else argmax_a Q(s, a)

Every step is one update, made before the next action is chosen, and is then forgotten: there is no
replay, no target network and no batch. An iteration is one step of one environment, so what
acts is always what the step before has taught, and many iterations are one compiled program.
g is gamma times the environment's discount: 0 at a termination, while a time limit bootstraps from
the true successor and cuts the trace. sd is the standard deviation of the discounted return so far.
s is normalised by the moments of all observations up to s, and s' by those up to s'. Networks begin
with a share ``sparsity`` of their weights at 0 and normalise their hidden layers.

As in the authors' code the trace is cut after the update with a random action, so that its error
still reaches the actions before (Watkins would cut it before). Forbidden actions have no part in
the maximum. Several choices at once are learned as in dqn.

Deviations from the authors' code: it treats time limits as terminations and shows the time to the
agent; the running return begins anew with each episode; an episode's first observation does not
count in the moments; variances are divided by n, not n - 1; every unit keeps at least one input (a
layer of up to 9 inputs would begin with none); encoders of images are those of all algorithms,
neither sparse nor normalised.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, UInt32

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.algorithms.streaming import stream_continuity
from sterling.equations import eligibility_traces
from sterling.equations.factored_values import max_q, q_of_choices
from sterling.equations.value_losses import td_error
from sterling.field_types import Depth, NotNegative, Positive, Share, ShareBelowOne, Sizes
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.nets.special_layers.sparse_mlp import SparseMLP
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are the authors' for classic control."""

    lr: NotNegative = 1.0  # alpha: step size before it is bounded
    gamma: Share = 0.99  # discount per step
    trace_lambda: Share = 0.8  # lambda: the trace decays by gamma lambda per step
    kappa: Positive = 2.0  # how far below overshooting the step size stays
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.01  # final epsilon
    exploration_fraction: Share = 0.05  # share of the planned steps over which epsilon is annealed
    normalise_obs: bool = True  # normalise observations by their running mean and std
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    sparsity: ShareBelowOne = 0.9  # share of each unit's weights that begin at 0
    width: Sizes = 32  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes during training."""

    net: dqn.QNetwork
    optimiser: optax.TraceState  # the eligibility trace z
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    expected: UInt32[Array, ""]  # fingerprint of the observation that continues the stream
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Rollouts:
    """Ask for each step as it comes."""
    return Rollouts(1)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for several environments, and for actions that are
    not choices."""
    return create("stream-q", key, spec, config)


def create(name: str, key: Key[Array, ""], spec: Spec, config: Any) -> State:
    """Create an agent of the algorithm ``name``, as ``init`` does."""
    stream_continuity.check_one_env(name, spec)
    actions = supported_actions(name, spec.action, ("discrete", "multi"), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth), actions.outputs)
    q = SparseMLP.create(random_keys.fold(key, "advantage"), sizes, config.sparsity)
    net = dqn.QNetwork(torso, q, None, actions)
    return State(
        net,
        optax.TraceState(jax.tree.map(jnp.zeros_like, net)),
        stream_continuity.create_obs_statistics(spec, config.normalise_obs),
        stream_continuity.create_reward_statistics(config.normalise_reward),
        jnp.zeros((), jnp.uint32),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations)),
        config,
    )


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and probability epsilon a random allowed one."""
    return dqn.act_by_values(state, values(state, obs), obs, key, explore)


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    return dqn.greedy_log_prob(state.net.actions, values(state, obs), obs, action)


def value(state: Any, obs: Obs) -> Float[Array, "..."]:
    """Return max_a Q(s, a), the greedy policy's return in units of normalised rewards."""
    sizes = state.net.actions.sizes
    return max_q(dqn.mask_forbidden(values(state, obs), obs, sizes), sizes)


def values(state: Any, obs: Obs) -> Float[Array, "... actions"]:
    """Return Q of every action."""
    q: Float[Array, "... actions"] = state.net(state.obs_statistics(obs))
    return q


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on one step ``(1, 1, ...)``. ``key`` is not used."""
    config, mask = state.config, batch.mask[0, 0]
    seen = state.obs_statistics.update(batch.next_obs, batch.mask)
    args = (batch.reward, batch.last, batch.mask, config.gamma)
    rewards = state.reward_statistics.update(*args)
    (q, is_greedy), slope = jax.value_and_grad(chosen_value, has_aux=True)(
        state.net, state.obs_statistics(batch.obs), batch
    )
    sizes = state.net.actions.sizes
    next_q = dqn.mask_forbidden(state.net(seen(batch.next_obs)), batch.next_obs, sizes)
    best = max_q(next_q, sizes)
    discount = config.gamma * batch.discount
    error = td_error(q, rewards.scale(batch.reward), discount, best)[0, 0]
    error = jnp.where(mask, error, 0.0)
    is_continued = stream_continuity.is_continued(batch, state.expected)
    decay = jnp.where(is_continued, config.gamma * config.trace_lambda, 0.0)
    trace = eligibility_traces.accumulate(state.optimiser.trace, slope, decay)
    net, size = eligibility_traces.ascend_along_trace(
        state.net, trace, error, config.lr, config.kappa
    )
    share = jnp.where(is_greedy, stream_continuity.trace_share(batch), 0.0)
    learned = dataclasses.replace(
        state,
        net=net,
        optimiser=optax.TraceState(eligibility_traces.scaled(trace, share)),
        obs_statistics=seen,
        reward_statistics=rewards,
        expected=stream_continuity.fingerprint(batch.next_obs),
        updates=state.updates + 1,
    )
    metrics = {
        "loss/td_error": jnp.abs(error),
        "loss/step_size": size,
        "value/q": q,
        "policy/epsilon": dqn.epsilon(state),
    }
    return learned, Signals(metrics, {"td_error": error[None, None]})


def chosen_value(net: dqn.QNetwork, obs: Obs, batch: Record) -> tuple[Float[Array, ""], Array]:
    """Return Q(s, a) of a row whose normalised observation is ``obs``, and whether a is the best
    action."""
    sizes = net.actions.sizes
    q = dqn.mask_forbidden(net(obs), batch.obs, sizes)
    chosen = q_of_choices(q, batch.action, sizes)[0, 0]
    return chosen, chosen >= max_q(q, sizes)[0, 0]
