"""Streaming actor-critic with traces: stream AC(lambda) (Elsayed 2024, arXiv:2410.14606).

    error        delta = r / sd + g V(s') - V(s)
    critic       z_V   <- gamma lambda z_V  + grad V(s)
    policy       z_pi  <- gamma lambda z_pi + grad [ log pi(a|s) + c_H sign(delta) H(pi(.|s)) ]
    bound        M     = alpha kappa max(|delta|, 1) |z|_1               (for each of both)
    update       w     <- w + min(alpha / M, alpha) delta z              (ObGD, for each of both)
    cut          z_V, z_pi <- 0  after an episode's last step
    numbers      pi = N(mean(s), softplus(scale(s))),  for choices a softmax

Every step is one update, made before the next action is chosen, and is then forgotten: there is no
replay and no batch. An iteration is one step of one environment, so what acts is always what the
step before has taught, and many iterations are one compiled program. delta times sign(delta) is
|delta|, so the bonus for entropy grows with the error. Policy and critic share nothing. What g, sd
and the units of s and s' are, and how networks begin, stream_q.py says.

Deviations from the authors' code are those of stream_q.py; actions are in units in which a bounded
Box is [-1, 1], and the environment clips them.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, UInt32

from sterling import random_keys
from sterling.algorithms.streaming import stream_continuity
from sterling.equations import eligibility_traces
from sterling.equations.value_losses import td_error
from sterling.field_types import Depth, NotNegative, Positive, Share, ShareBelowOne, Sizes
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.distributions import ActionDistribution, Normal
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.nets.special_layers.sparse_mlp import SparseMLP
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config

LEAST = -15.0  # below it log softplus(x) is x, in float32


@config
class Config:
    """Defaults are the authors' for MuJoCo."""

    lr: NotNegative = 1.0  # alpha: step size before it is bounded
    gamma: Share = 0.99  # discount per step
    trace_lambda: Share = 0.8  # lambda: traces decay by gamma lambda per step
    kappa_policy: Positive = 3.0  # how far below overshooting the policy's step size stays
    kappa_value: Positive = 2.0  # the same of the critic
    entropy_coef: NotNegative = 0.01  # c_H: weight of the entropy
    normalise_obs: bool = True  # normalise observations by their running mean and std
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    sparsity: ShareBelowOne = 0.9  # share of each unit's weights that begin at 0
    width: Sizes = 128  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class Network(eqx.Module):
    """An encoder and a perceptron; ``torso`` has no parameters for vectors."""

    torso: Encoder
    net: SparseMLP

    def __call__(self, obs: Obs) -> Float[Array, "... outputs"]:
        """Return the outputs for normalised observations."""
        return self.net(self.torso(obs))


class Nets(eqx.Module):
    """All networks; also their traces."""

    policy: Network
    value: Network
    actions: Actions = eqx.field(static=True)

    def distribution(self, obs: Obs, normal: Obs) -> ActionDistribution:
        """Return pi(.|s); ``normal`` is the observation normalised."""
        outputs = self.policy(normal)
        if self.actions.kind != "box":
            return self.actions.distribution(outputs, action_mask(obs, self.actions.sizes))
        mean, scale = jnp.split(outputs, 2, -1)
        log_std = jnp.log(jax.nn.softplus(jnp.maximum(scale, LEAST)))
        return Normal(mean, jnp.where(scale < LEAST, scale, log_std))


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.TraceState  # the eligibility traces z_pi and z_V
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    expected: UInt32[Array, ""]  # fingerprint of the observation that continues the stream
    config: Config


def needs(config: Config) -> Rollouts:
    """Ask for each step as it comes."""
    return Rollouts(1)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for several environments, and for actions of choices
    and numbers together."""
    stream_continuity.check_one_env("stream-ac", spec)
    actions = supported_actions("stream-ac", spec.action, ("discrete", "multi", "box"), ONLINE)

    def network(name: str, outputs: int) -> Network:
        own_key = random_keys.fold(key, name)
        torso = Encoder.create(random_keys.fold(own_key, "torso"), spec)
        sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth), outputs)
        return Network(torso, SparseMLP.create(own_key, sizes, config.sparsity))

    outputs = actions.outputs * (2 if actions.kind == "box" else 1)
    nets = Nets(network("policy", outputs), network("value", 1), actions)
    return State(
        nets,
        optax.TraceState(jax.tree.map(jnp.zeros_like, nets)),
        stream_continuity.create_obs_statistics(spec, config.normalise_obs),
        stream_continuity.create_reward_statistics(config.normalise_reward),
        jnp.zeros((), jnp.uint32),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    pi = state.nets.distribution(obs, state.obs_statistics(obs))
    return state.nets.actions.shaped(pi.sample(key) if explore else pi.mode()), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    pi = state.nets.distribution(obs, state.obs_statistics(obs))
    return pi.log_prob(state.nets.actions.flat(action))


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return state.nets.value(state.obs_statistics(obs))[..., 0]


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on one step ``(1, 1, ...)``. ``key`` is not used."""
    config, nets = state.config, state.nets
    seen = state.obs_statistics.update(batch.next_obs, batch.mask)
    args = (batch.reward, batch.last, batch.mask, config.gamma)
    rewards = state.reward_statistics.update(*args)
    obs, next_value = state.obs_statistics(batch.obs), nets.value(seen(batch.next_obs))[..., 0]
    reward, discount = rewards.scale(batch.reward), config.gamma * batch.discount
    error = td_error(nets.value(obs)[..., 0], reward, discount, next_value)[0, 0]
    error = jnp.where(batch.mask[0, 0], error, 0.0)
    slope, entropy = jax.grad(objective, has_aux=True)(
        nets, obs, batch, config.entropy_coef * jnp.sign(error)
    )
    is_continued = stream_continuity.is_continued(batch, state.expected)
    decay = jnp.where(is_continued, config.gamma * config.trace_lambda, 0.0)
    trace = eligibility_traces.accumulate(state.optimiser.trace, slope, decay)
    policy, size = eligibility_traces.ascend_along_trace(
        nets.policy, trace.policy, error, config.lr, config.kappa_policy
    )
    critic, critic_size = eligibility_traces.ascend_along_trace(
        nets.value, trace.value, error, config.lr, config.kappa_value
    )
    share = stream_continuity.trace_share(batch)
    learned = State(
        Nets(policy, critic, nets.actions),
        optax.TraceState(eligibility_traces.scaled(trace, share)),
        seen,
        rewards,
        stream_continuity.fingerprint(batch.next_obs),
        config,
    )
    metrics = {
        "loss/td_error": jnp.abs(error),
        "loss/policy_step_size": size,
        "loss/value_step_size": critic_size,
        "policy/entropy": entropy,
    }
    return learned, Signals(metrics, {"td_error": error[None, None]})


def objective(
    nets: Nets, obs: Obs, batch: Record, bonus: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return what traces accumulate the slope of: V(s) + log pi(a|s) + ``bonus`` H(pi(.|s)), of
    which policy and critic have no parameters in common; and the entropy. ``obs`` is normalised."""
    pi = nets.distribution(batch.obs, obs)
    log_prob, entropy = pi.log_prob(nets.actions.flat(batch.action)), pi.entropy()
    total = nets.value(obs)[..., 0] + log_prob + bonus * entropy
    return total[0, 0], entropy[0, 0]
