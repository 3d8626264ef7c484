"""Streaming SARSA with traces: stream SARSA(lambda) (Elsayed 2024, arXiv:2410.14606).

    error        delta = r / sd + g Q(s', a') - Q(s, a)
    trace        z     <- gamma lambda z + grad Q(s, a)
    bound        M     = alpha kappa max(|delta|, 1) |z|_1
    update       w     <- w + min(alpha / M, alpha) delta z              (ObGD)
    cut          z     <- 0  after an episode's last step
    behaviour    a uniformly at random with probability epsilon, else argmax_a Q(s, a)

It is stream_q.py with the value of the action that is really taken next, so random actions cut no
trace, and Q is the value of the policy that explores. a' is chosen with the weights before the
update, as in SARSA (Sutton & Barto 2018, section 12.7), so the update of a step needs the choice of
the next one: it is made in the next iteration, after a' was chosen and before the step of a' is
learned from. In between the state holds the trace z and two numbers, r / sd - Q(s, a) and g; the
observation is not stored. After an episode's last step a' is the action that the world ignores as
it resets: it counts where a time limit cut the episode, and has g = 0 where the episode terminated.

Deviations are those of stream_q.py.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, UInt32

from sterling.algorithms.online import dqn
from sterling.algorithms.streaming import stream_continuity, stream_q
from sterling.equations import eligibility_traces
from sterling.equations.factored_values import q_of_choices
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config(stream_q.Config):
    """Defaults are the authors' for classic control."""


class WaitingStep(eqx.Module):
    """What is kept of a step until the next action is known."""

    trace: dqn.QNetwork  # z, of this step included
    error: Float[Array, ""]  # r / sd - Q(s, a)
    discount: Float[Array, ""]  # g
    share: Float[Array, ""]  # by how much z counts after this step's update


class State(eqx.Module):
    """Everything that changes during training."""

    net: dqn.QNetwork
    optimiser: optax.TraceState  # a WaitingStep
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    expected: UInt32[Array, ""]  # fingerprint of the observation that continues the stream
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Rollouts:
    """Ask for each step as it comes."""
    return stream_q.needs(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for several environments, and for actions that are
    not choices."""
    made = stream_q.create("stream-sarsa", key, spec, config)
    zero = jnp.zeros(())
    waiting = WaitingStep(made.optimiser.trace, zero, jnp.copy(zero), jnp.copy(zero))
    return State(**vars(made) | {"optimiser": optax.TraceState(waiting)})


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and probability epsilon a random allowed one."""
    return stream_q.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    return stream_q.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return max_a Q(s, a), in units of normalised rewards; Q is that of the policy that
    explores."""
    return stream_q.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make the update that the step before is waiting for, and prepare that of this step
    ``(1, 1, ...)``. ``key`` is not used."""
    config, waiting = state.config, state.optimiser.trace
    obs = state.obs_statistics(batch.obs)
    net, error, size = finish_update(state, obs, batch)
    args = (batch.reward, batch.last, batch.mask, config.gamma)
    rewards = state.reward_statistics.update(*args)
    q, slope = jax.value_and_grad(chosen_value)(net, obs, batch)
    is_continued = stream_continuity.is_continued(batch, state.expected)
    decay = jnp.where(is_continued, config.gamma * config.trace_lambda * waiting.share, 0.0)
    trace = eligibility_traces.accumulate(waiting.trace, slope, decay)
    counts = batch.mask[0, 0]
    following = WaitingStep(
        eligibility_traces.scaled(trace, jnp.where(counts, 1.0, 0.0)),
        jnp.where(counts, rewards.scale(batch.reward)[0, 0] - q, 0.0),
        jnp.where(counts, config.gamma * batch.discount[0, 0], 0.0),
        stream_continuity.trace_share(batch),
    )
    learned = dataclasses.replace(
        state,
        net=net,
        optimiser=optax.TraceState(following),
        obs_statistics=state.obs_statistics.update(batch.next_obs, batch.mask),
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


def finish_update(
    state: State, obs: Obs, batch: Record
) -> tuple[dqn.QNetwork, Float[Array, ""], Float[Array, ""]]:
    """Return the network after the update of the step before, its error and its step size. a' is
    the action of this row, whose normalised observation is ``obs``. If this row does not continue
    the step before, the error is 0."""
    config, waiting = state.config, state.optimiser.trace
    error = waiting.error + waiting.discount * chosen_value(state.net, obs, batch)
    error = jnp.where(stream_continuity.is_continued(batch, state.expected), error, 0.0)
    net, size = eligibility_traces.ascend_along_trace(
        state.net, waiting.trace, error, config.lr, config.kappa
    )
    return net, error, size


def chosen_value(net: dqn.QNetwork, obs: Obs, batch: Record) -> Float[Array, ""]:
    """Return Q(s, a) of a row whose normalised observation is ``obs``."""
    return q_of_choices(net(obs), batch.action, net.actions.sizes)[0, 0]
