"""Conservative Q-learning (Kumar 2020, arXiv:2006.04779) and Cal-QL (Nakamoto 2023, 2303.05479).

    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 + alpha' gap_i ]
    gap          gap_i = log int exp Q_i(s, a') da' - Q_i(s, a)                        (CQL(H))
    target       y     = r + g E_a[ min_i Q'_i(s', a) ],                    a ~ pi(.|s')
    multiplier   alpha' <- larger while E[gap] > target_gap        (or fixed, with target_gap None)
    actor, temperature   as SAC's (``online/sac.py``)

g is gamma times the environment's discount; Q'_i follows Q_i at rate ``tau`` per update. The gap
lowers Q of actions that softmax Q takes more often than the dataset does. If the policy is softmax
Q, and alpha' is large enough for the dataset's noise, its learned value is at most its true one
(theorem 3.2; a greedier policy on logged actions may be overestimated). Box: the integral is
estimated from ``n_actions`` each of uniform actions, of pi(.|s) and of pi(.|s'), weighted by their
densities. Discrete: the same learner on SAC's discrete form, with exact integral and expectations;
it keeps the actor, where Q-learning has a maximum, so that both kinds explore and fine-tune alike.

``calibrated`` is Cal-QL: in the gap, Q of the policy's actions counts as max(Q, R), R the dataset's
return from there on, so Q is not lowered below the behaviour policy's value and is not forgotten
when learning continues online. R must bound V from below, so after a truncation the dataset's
smallest reward, if negative, is assumed to follow for ever (as in the authors' code for constant
step costs). Where R is unknown (an episode that has not ended) it is CQL.

Deviations from the papers: alpha' is that of the authors' code, which has the full square where eq.
4 has half of it (alpha' there is half as large); the integral is a mean of samples, not a sum, so
``target_gap`` is smaller by log(3 n_actions); no reward scale, no cloning at the start; initial
networks are SAC's; critics are updated first; Cal-QL's target is CQL's, while its code takes the
best of ten next actions. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.offline import edac
from sterling.algorithms.online import sac
from sterling.equations import conservative_q
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.soft_values import initial_alpha
from sterling.equations.value_losses import q_of_action, td_target
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import FORBIDDEN_LOGIT, OFFLINE, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.distributions import Categorical
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import TwinCritics
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

MAX_LOG_PENALTY = math.log(1e6)  # as in the authors' code
checked_in = {"data": "random"}  # its values are below the right answers of probes
SampledActions = tuple[Float[Array, "sample batch n"], Float[Array, "sample batch"]]  # a, log p


@config
class Config:
    """Defaults are those of the authors' code for D4RL's locomotion tasks."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics and multiplier
    actor_lr: NotNegative = 1e-4  # Adam's step size, for actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    penalty: NotNegative = 5.0  # alpha': weight of the gap; the initial value if target_gap is set
    target_gap: Finite | None = None  # gap to hold by tuning alpha', in returns; None: fixed alpha'
    calibrated: bool = False  # Cal-QL: do not lower Q below the dataset's return
    n_actions: Count = 10  # samples of each kind of action for the gap (Box)
    backup_entropy: bool = False  # the target includes entropy, as SAC's does
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A), or 0.1 of the maximum (discrete)
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy
    critics: TwinCritics
    target: TwinCritics
    log_alpha: Float[Array, ""]
    log_penalty: Float[Array, ""]
    normaliser: ObsNormaliser
    optimisers: tuple[optax.OptState, ...]  # critics, actor, temperature, multiplier
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly; for Cal-QL with the dataset's returns."""
    return Transitions(
        *(config.batch, config.collect, config.learn, config.capacity, config.warmup),
        monte_carlo=float(config.gamma) if config.calibrated else None,
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are neither a Box nor Discrete."""
    actions = supported_actions("cql", spec.action, ("box", "discrete"), OFFLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor_key, critic_key = (random_keys.fold(key, name) for name in ("actor", "critics"))
    how, norm = config.activation, config.layer_norm
    actor = Policy.create(actor_key, (torso.size, *hidden), actions, activation=how)
    sizes = actions.critic_sizes
    critics = TwinCritics.create(critic_key, torso, hidden, *sizes, layer_norm=norm, activation=how)
    log_alpha = jnp.log(initial_alpha(config.alpha, config.tune_alpha))
    log_penalty = jnp.log(jnp.maximum(jnp.asarray(config.penalty, jnp.float32), 1e-6))
    normaliser = ObsNormaliser.of_log(spec, config.normalise_obs)
    optimisers = tuple(adam().init(x) for x in (critics, actor, log_alpha, log_penalty))
    copy = jax.tree.map(jnp.copy, critics)
    return State(actor, critics, copy, log_alpha, log_penalty, normaliser, optimisers, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return edac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return edac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smaller critic's value of the policy's mode (discrete: its mean value)."""
    pi, obs = edac.policy_distribution(state, obs), state.normaliser(obs)
    if isinstance(pi, Categorical):
        alpha, key = jnp.zeros(()), jax.random.key(0)  # no entropy; the key is not used
        return sac.policy_value(pi, state.critics, obs, alpha, key)[0]
    return jnp.minimum(*state.critics.q_values(obs, pi.mode()))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critics, actor, temperature and multiplier once on transitions ``(batch, ...)``."""
    config, normaliser = state.config, state.normaliser
    critic_state, actor_state, alpha_state, penalty_state = state.optimisers
    batch = normaliser.batch(batch)

    y = target(state, batch, random_keys.fold(key, "next"))
    sampled = sample_actions(state, batch, key)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(
        state.critics, state, batch, y, sampled
    )
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    alpha = jnp.exp(state.log_alpha)
    grads, (policy_metrics, entropy) = jax.grad(sac.actor_loss, has_aux=True)(
        state.actor, critics, batch, alpha, random_keys.fold(key, "now")
    )
    direction, actor_state = adam().update(grads, actor_state)
    actor = descend(state.actor, direction, config.actor_lr)

    log_alpha, log_penalty = state.log_alpha, state.log_penalty
    if config.tune_alpha:
        goal = edac.offline_target_entropy(actor.actions, config.target_entropy, batch.obs)
        grads = jax.grad(sac.alpha_loss)(log_alpha, entropy, goal, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.actor_lr)
    if config.target_gap is not None:
        grads = jax.grad(conservative_q.multiplier_loss)(
            log_penalty, metrics["value/gap"], config.target_gap
        )
        direction, penalty_state = adam().update(grads, penalty_state)
        log_penalty = jnp.minimum(descend(log_penalty, direction, config.lr), MAX_LOG_PENALTY)

    targets = polyak(state.target, critics, config.tau)
    optimisers = (critic_state, actor_state, alpha_state, penalty_state)
    learned = State(actor, critics, targets, log_alpha, log_penalty, normaliser, optimisers, config)
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    alpha = jnp.exp(state.log_alpha) if state.config.backup_entropy else jnp.zeros(())
    next_value, _ = sac.policy_value(pi, state.target, batch.next_obs, alpha, key)
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def critic_loss(
    critics: TwinCritics, state: State, batch: Record, y: Array, sampled: SampledActions | None
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row (mean over critics)."""
    config = state.config
    penalty = config.penalty if config.target_gap is None else jnp.exp(state.log_penalty)
    loss, (metrics, error) = sac.critic_loss(critics, batch, y)
    gap = masked_mean(jnp.sum(conservative_gaps(critics, batch, sampled, config), 0), batch.mask)
    total = loss + 0.5 * penalty * gap
    return total, ({**metrics, "loss/value": total, "value/gap": 0.5 * gap}, error)


def conservative_gaps(
    critics: TwinCritics, batch: Record, sampled: SampledActions | None, config: Config
) -> Float[Array, "2 batch"]:
    """Return gap_i of the module docstring; ``sampled`` is None for discrete actions."""
    action: Array = batch.action
    if sampled is None:
        mask = action_mask(batch.obs, critics.choices)
        q = jnp.stack(critics.all_q_values(batch.obs))
        logged = jnp.stack([q_of_action(each, action) for each in q])
        q = gap_q_values(q, batch, config)
        if mask is not None:
            q = jnp.where(mask[None], q, FORBIDDEN_LOGIT)
        return conservative_q.conservative_gap_discrete(q, logged)
    features, (actions, log_density) = critics.torso(batch.obs), sampled
    repeated = jnp.broadcast_to(features[None], (*log_density.shape, features.shape[-1]))
    q = jnp.stack(critics.q_from_features(repeated, actions), 1)  # sample, critic, batch
    logged = jnp.stack(critics.q_from_features(features, action.reshape(batch.mask.size, -1)))
    uniform, own = jnp.split(jnp.moveaxis(q, 0, -1), [config.n_actions], -1)
    q = jnp.concatenate([uniform, gap_q_values(own, batch, config)], -1)
    log_density = jnp.broadcast_to(log_density[:, None], (*log_density.shape[:1], *logged.shape))
    return conservative_q.conservative_gap(jnp.moveaxis(q, -1, 0), log_density, logged)


def gap_q_values(
    q: Float[Array, "2 batch k"], batch: Record, config: Config
) -> Float[Array, "2 batch k"]:
    """Return Q of the policy's actions as it counts in the gap: for Cal-QL max(Q, R)."""
    if not config.calibrated:
        return q
    reference = jnp.broadcast_to(batch.extras["monte_carlo"][None, :, None], q.shape)
    return conservative_q.calibrated_q(q, reference)


def sample_actions(state: State, batch: Record, key: Key[Array, ""]) -> SampledActions | None:
    """Draw actions for the integral, uniform ones first, with log-densities; None if discrete."""
    policies = [state.actor(obs, state.critics.torso(obs)) for obs in (batch.obs, batch.next_obs)]
    if isinstance(policies[0], Categorical):
        return None
    count, size = state.config.n_actions, state.actor.actions.outputs
    shape = (count, batch.mask.size, size)
    actions = [jax.random.uniform(random_keys.fold(key, "uniform"), shape, minval=-1.0, maxval=1.0)]
    log_density = [jnp.full(shape[:2], -size * math.log(2.0))]
    for name, pi in zip(("policy", "successor"), policies, strict=True):
        draws = random_keys.split(random_keys.fold(key, name), "draw", count)
        samples = jax.vmap(pi.sample_and_log_prob)(draws)
        actions.append(samples[0])
        log_density.append(samples[1])
    return jnp.concatenate(actions), jnp.concatenate(log_density)
