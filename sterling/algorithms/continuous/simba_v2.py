"""SimBa v2: SAC on the unit sphere (Lee 2025, arXiv:2502.15280).

    networks     s as simba's; features and weights have length 1, residual blocks move on the
                 sphere, and learned factors scale units (hyperspherical_mlp.py)
    values       Q_i(s, a) = sum_k z_k p_ik(s, a),    z_k at equal distances from -v_max to v_max
    rewards      r = reward / max(sd(G), max |G| / v_max),   G the discounted returns so far
    targets      m_k   = the probabilities p'_jk(s', a') of r + g (z_k - alpha log pi(a'|s')), moved
                 to the atoms (categorical_values.py),   j = argmin_i Q'_i(s', a'),   a' ~ pi(.|s')
    critics      L_Q   = E[ - w sum_i sum_k m_k log p_ik(s, a) ]
    actor        L_pi  = E[ alpha log pi(a|s) - min_i Q_i(s, a) ],           a ~ pi(.|s)
    temperature  L_a   = E[ alpha (H(pi(.|s)) + dim(A) / 2) ]
    steps        theta <- theta - lr_t Adam's direction; then each unit's weights are divided by
                 their length (weight_projection.py)

g is gamma times the environment's discount; p' follow at rate ``tau`` per update; w is 1, or
prioritised replay's importance weight; lr_t falls in a line to (1 - ``lr_decay``) lr at the run's
end. The order is the paper's: actor, temperature, then critics with the new policy. Log deviations
are squashed into (-10, 2). ``members=1`` is the paper's single critic of tasks that never end.

Deviations from the paper: the statistics of observations are those of replayed ones, each update
counting its batch, and those of returns count from the first update on, where the paper counts each
collected step, warm-up included; G restarts after an episode's last step, where its code drops the
past in that step; ``gamma`` is constant, where its code computes it from the length of episodes
(0.95 to 0.995, MuJoCo's 0.995). ``value`` and ``action_value`` are in the environment's units. With
``priority`` a row's TD error is the mean KL(m || p_i). Images are encoded by one torso, which only
the critics' loss trains and no projection touches. Entries that only critics may see are not
supported. Learning from a log needs ``normalise_reward=False``, because logs have no fresh rows.
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
from sterling.algorithms.continuous import simba
from sterling.algorithms.offline import edac
from sterling.equations import categorical_values, soft_values
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import (
    Activation,
    AtLeastTwo,
    Count,
    Finite,
    NotNegative,
    Positive,
    Share,
    Whole,
)
from sterling.needs.algorithm_needs import Needs, Transitions
from sterling.needs.feed import FRESH, Feed
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend, falling_lr
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.running_statistics import ObsNormaliser, ReturnScale
from sterling.nets.special_layers.hyperspherical_mlp import HypersphericalMLP
from sterling.nets.special_layers.weight_projection import with_unit_weights
from sterling.types import Action, Obs, Record, Signals, Spec, config

LEAST = -10.0  # bound of the policy's log deviation


@config
class Config:
    """Defaults are those of the paper (appendix) and its code."""

    lr: NotNegative = 1e-4  # Adam's first step size, for critics, actor and temperature
    lr_decay: Share = 0.5  # share of the step size that is gone at the end of the run
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    members: Count = 2  # critics
    atoms: AtLeastTwo = 101  # of each critic's distribution
    v_max: Positive = 5.0  # largest atom, in units of scaled returns; the smallest is -v_max
    alpha: NotNegative = 0.01  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A) / 2
    normalise_obs: bool = True  # normalise observations by their running mean and deviation
    normalise_reward: bool = True  # divide rewards by the scale of discounted returns
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 2  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 5_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Count = 128  # units between the actor's blocks; four times as many inside
    blocks: Whole = 1  # residual blocks of the actor
    critic_width: Count = 512  # units between the critics' blocks; four times as many inside
    critic_blocks: Whole = 2  # residual blocks of each critic
    activation: Activation = "relu"  # inside blocks: tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy  # its net is a HypersphericalMLP with two heads
    critics: CriticEnsemble  # as are these, with one, and a leading axis of members
    target: CriticEnsemble
    log_alpha: Float[Array, ""]
    normaliser: ObsNormaliser
    returns: ReturnScale
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Needs | Transitions:
    """Ask for replayed transitions, and for fresh steps where rewards are normalised."""
    replayed = Transitions.of_config(config)
    if not config.normalise_reward:
        return replayed
    feeds = (Feed(FRESH, "returns"), *replayed.feeds)
    return Needs(config.collect, feeds, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box."""
    actions = supported_actions("simba-v2", spec.action, ("box",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    sizes, kind = (torso.size, config.width, 2 * actions.outputs), config.activation
    actor_key, critic_key = (random_keys.fold(key, part) for part in ("actor", "critics"))
    net = HypersphericalMLP.create(actor_key, sizes, config.blocks, kind, heads=2)
    wide = torso.size + actions.outputs, config.critic_width, config.atoms
    make = jax.vmap(lambda key: HypersphericalMLP.create(key, wide, config.critic_blocks, kind))
    critics = CriticEnsemble(torso, make(random_keys.split(critic_key, "member", config.members)))
    actor, target = Policy(net, actions, LEAST, squashed=True), jax.tree.map(jnp.copy, critics)
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    seen = ObsNormaliser.create(spec.obs, config.normalise_obs, jnp.inf)
    returns = ReturnScale.create(spec.envs, config.normalise_reward)
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    counts = jnp.zeros((), jnp.int32), jnp.asarray(float(spec.iterations * config.learn))
    return State(actor, critics, target, log_alpha, seen, returns, optimisers, *counts, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's shape."""
    return edac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return edac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smallest critic's value of the policy's mode, in the environment's units."""
    mode = edac.policy_distribution(state, obs).mode()
    return action_value(state, obs, state.actor.actions.shaped(mode))


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a), in the environment's units."""
    flat = state.actor.actions.flat(action)
    q = q_values(state.critics, state.normaliser(obs), flat, state.config).min(0)
    return q * state.returns.divisor(state.config.v_max)


def q_values(
    critics: CriticEnsemble, obs: Obs, action: Float[Array, "... n"], config: Config
) -> Float[Array, "member ..."]:
    """Return every Q_i(s, a), in units of scaled returns."""
    return categorical_values.expected_value(critics.outputs(obs, action), support(config))


def support(config: Config) -> Float[Array, "atom"]:
    """Return the atoms z_k."""
    return categorical_values.make_support(-config.v_max, config.v_max, config.atoms)


def learn_returns(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Count the discounted returns of fresh rows ``(time, env, ...)``. ``key`` is not used."""
    gamma = state.config.gamma
    returns = state.returns.update(batch.reward, batch.last, batch.mask, gamma)
    learned = dataclasses.replace(state, returns=returns)
    return learned, Signals({"scale": returns.divisor(state.config.v_max)})


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Count the observations of transitions ``(batch, ...)`` into the running statistics, then
    update actor, temperature and critics once."""
    config, (critic_state, actor_state, _) = state.config, state.optimisers
    normaliser = state.normaliser.update(batch.obs, batch.mask)
    batch = normaliser.batch(batch)
    batch = dataclasses.replace(batch, reward=batch.reward / state.returns.divisor(config.v_max))
    alpha = jnp.exp(state.log_alpha)
    rate = falling_lr(config.lr, config.lr_decay, state.updates, state.planned)
    now, actor_grad = random_keys.fold(key, "now"), jax.grad(actor_loss, has_aux=True)
    grads, (policy_metrics, spread) = actor_grad(state.actor, state, batch, now)
    direction, actor_state = adam().update(grads, actor_state)
    actor = with_unit_weights(descend(state.actor, direction, rate))
    log_alpha, alpha_state = simba.temperature_step(state, batch, spread, rate)
    state = dataclasses.replace(state, actor=actor, log_alpha=log_alpha, normaliser=normaliser)
    m = targets(state, batch, random_keys.fold(key, "next"))
    critic_grad = jax.grad(critic_loss, has_aux=True)
    grads, (metrics, error) = critic_grad(state.critics, batch, m, config)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, rate)
    critics = CriticEnsemble(critics.torso, with_unit_weights(critics.nets))
    learned = dataclasses.replace(
        state,
        critics=critics,
        target=polyak(state.target, critics, config.tau),
        optimisers=(critic_state, actor_state, alpha_state),
        updates=state.updates + 1,
    )
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def targets(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch atom"]:
    """Return the m_k of the module docstring, of normalised observations and rewards."""
    config, z = state.config, support(state.config)
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    action, log_p = pi.sample_and_log_prob(key)
    logits = state.target.outputs(batch.next_obs, action)
    least = categorical_values.expected_value(logits, z).argmin(0)
    p = jax.nn.softmax(jnp.take_along_axis(logits, least[None, :, None], 0)[0])
    soft = soft_values.soft_value(z[None], log_p[:, None], jnp.exp(state.log_alpha))
    y = td_target(batch.reward[:, None], config.gamma * batch.discount[:, None], soft)
    return categorical_values.project_onto_support(y, p, z)


def critic_loss(
    critics: CriticEnsemble, batch: Record, m: Float[Array, "batch atom"], config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and each row's mean KL(m || p_i)."""
    logits = critics.outputs(batch.obs, batch.action.reshape(len(m), -1))
    each = categorical_values.cross_entropy(m[None], logits)
    weight = batch.extras.get("weight", jnp.ones_like(batch.reward))
    loss = masked_mean(weight * jnp.sum(each, 0), batch.mask)
    q = categorical_values.expected_value(logits, support(config)).mean(0)
    metrics = {"loss/value": loss, "value/q": masked_mean(q, batch.mask)}
    return loss, (metrics, jnp.mean(each, 0) - categorical_values.entropy(m))


def actor_loss(
    actor: Policy, state: State, batch: Record, key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_pi of the module docstring, metrics, and each row's estimate of the entropy."""
    pi = actor(batch.obs, state.critics.torso(batch.obs))
    action, log_p = pi.sample_and_log_prob(key)
    q = q_values(state.critics, batch.obs, action, state.config).min(0)
    loss = -masked_mean(soft_values.soft_value(q, log_p, jnp.exp(state.log_alpha)), batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(-log_p, batch.mask)}
    return loss, (metrics, -log_p)
