"""SAC-N and ensemble-diversified actor-critic (An 2021, arXiv:2110.01548).

    value        V(s)  = E_a[ min_i Q_i(s, a) - alpha log pi(a|s) ],      a ~ pi(.|s), i = 1 ... N
    target       y     = r + g V'(s')
    critics      L_Q   = 1/2 ( sum_i E[ w (Q_i(s, a) - y)^2 ] + eta D )
    diversity    D     = E[ 1/(N-1) sum_{i != j} cos( grad_a Q_i(s, a), grad_a Q_j(s, a) ) ]
    actor        L_pi  = -E[ V(s) ]
    temperature  L_a   = E[ alpha (H(pi(.|s)) - H_target) ]

g is gamma times the environment's discount; V' uses target critics that follow at rate ``tau`` per
update. Far from the data the members disagree, so the minimum of many is pessimistic there; D makes
their gradients differ, so that fewer members are enough. ``diversity=None`` (eta = 0) is SAC-N, and
with two members SAC. Discrete actions: SAC-N with exact sums; there are no gradients to diversify.

For learning online with a dataset (RLPD; Ball 2023, arXiv:2302.02948): with ``subset`` the target's
minimum is over that many members, redrawn in each update, and the policy maximises the mean of all
(Chen 2021, algorithm 1); ``layer_norm`` bounds values far from the data; ``backup_entropy=False``
leaves the entropy out of the target.

Deviations: L_Q is halved, as everywhere here; networks are initialised as SAC's; critics are
updated first. The policy's log deviation lies in (-5, 2), as in the authors' code (SAC and RLPD:
-20, 2). From RLPD: H_target is not halved, and the actor is updated as often as the critics.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online.sac import alpha_loss, target_entropy
from sterling.equations.ensemble_diversity import gradient_similarity
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.soft_values import initial_alpha, soft_value, soft_value_discrete
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import OFFLINE, Actions, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.distributions import Categorical
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of An 2021 for D4RL's HalfCheetah and Walker2d (appendix)."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    members: Count = 10  # N: number of critics (Hopper: 50)
    diversity: NotNegative | None = 1.0  # eta: weight of the diversity loss; None: SAC-N
    subset: Count | None = None  # critics drawn for each target (RLPD: 1 or 2); None: all
    layer_norm: bool = False  # normalise the critics' hidden layers (RLPD)
    backup_entropy: bool = True  # the target includes entropy
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A), or 0.1 of the maximum (discrete)
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy
    critics: CriticEnsemble
    target: CriticEnsemble
    log_alpha: Float[Array, ""]
    normaliser: ObsNormaliser
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for MultiDiscrete and for undefined diversity."""
    actions = supported_actions("edac", spec.action, ("box", "discrete"), OFFLINE)
    check_config(actions, spec, config)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor_key, critic_key = (random_keys.fold(key, name) for name in ("actor", "critics"))
    kind: Any = {"activation": config.activation}
    actor = Policy.create(actor_key, (torso.size, *hidden), actions, -5.0, **kind)  # authors' bound
    options: Any = {"members": config.members, "layer_norm": config.layer_norm, **kind}
    critics = CriticEnsemble.create(critic_key, torso, hidden, *actions.critic_sizes, **options)
    copy = jax.tree.map(jnp.copy, critics)
    log_alpha = jnp.log(initial_alpha(config.alpha, config.tune_alpha))
    normaliser = ObsNormaliser.of_log(spec, config.normalise_obs)
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    return State(actor, critics, copy, log_alpha, normaliser, optimisers, config)


def check_config(actions: Actions, spec: Spec, config: Config) -> None:
    """Raise Mistake for wrong diversity and subset."""
    if config.diversity and actions.kind == "discrete":
        raise Mistake(f"Diversity is not defined for {spec.action}. Set diversity=None (SAC-N).")
    if config.diversity and config.members < 2:
        raise Mistake("Diversity needs several members. Set members=2 or more, or diversity=None.")
    if config.subset is not None and not 1 <= config.subset <= config.members:
        raise Mistake(f"subset={config.subset} must lie between 1 and members={config.members}.")


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``. Here and in ``log_prob``
    ``state`` may be any object with ``actor``, ``critics`` and ``normaliser``."""
    pi = policy_distribution(state, obs)
    if isinstance(pi, Categorical):
        return (pi.sample(key) if explore else pi.mode()), {}
    action = pi.sample_and_log_prob(key)[0] if explore else pi.mode()
    return state.actor.actions.shaped(action), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return policy_distribution(state, obs).log_prob(state.actor.actions.flat(action))


def policy_distribution(state: Any, obs: Obs) -> Any:
    """Return pi(.|s) of unnormalised observations."""
    obs = state.normaliser(obs)
    return state.actor(obs, state.critics.torso(obs))


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smallest critic's value of the policy's mode (discrete: its mean value)."""
    pi, obs = policy_distribution(state, obs), state.normaliser(obs)
    if isinstance(pi, Categorical):
        return jnp.sum(jax.nn.softmax(pi.logits) * state.critics.all_q_values(obs).min(0), -1)
    return state.critics.q_values(obs, pi.mode()).min(0)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critics, actor and temperature once on transitions ``(batch, ...)``."""
    config, batch = state.config, state.normaliser.batch(batch)
    critic_state, actor_state, alpha_state = state.optimisers

    y = target(state, batch, random_keys.fold(key, "next"))
    critic_grad = jax.grad(critic_loss, has_aux=True)
    grads, (metrics, error) = critic_grad(state.critics, batch, y, config.diversity)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    actor_grad, now = jax.grad(actor_loss, has_aux=True), random_keys.fold(key, "now")
    grads, (policy_metrics, entropy) = actor_grad(state.actor, state, batch, critics, now)
    direction, actor_state = adam().update(grads, actor_state)
    actor = descend(state.actor, direction, config.lr)

    log_alpha = state.log_alpha
    if config.tune_alpha:
        goal = offline_target_entropy(actor.actions, config.target_entropy, batch.obs)
        grads = jax.grad(alpha_loss)(log_alpha, entropy, goal, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)

    learned = dataclasses.replace(
        state,
        actor=actor,
        critics=critics,
        target=polyak(state.target, critics, config.tau),
        log_alpha=log_alpha,
        optimisers=(critic_state, actor_state, alpha_state),
    )
    return learned, Signals({**metrics, **policy_metrics}, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    config, critics = state.config, state.target
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    if config.subset is not None:
        order = jax.random.permutation(random_keys.fold(key, "members"), config.members)
        critics = critics.take_members(order[: config.subset])
    alpha = jnp.exp(state.log_alpha) if config.backup_entropy else jnp.zeros(())
    next_value, _ = policy_value(pi, critics, batch.next_obs, alpha, key=key)
    return td_target(batch.reward, config.gamma * batch.discount, next_value)


def critic_loss(
    critics: CriticEnsemble, batch: Record, y: Float[Array, "batch"], diversity: float | None
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row (mean over members)."""
    action: Array = batch.action
    if jnp.issubdtype(action.dtype, jnp.integer):
        q = jnp.take_along_axis(critics.all_q_values(batch.obs), action[None, :, None], -1)[..., 0]
    else:
        action = action.reshape(batch.mask.size, -1)
        q = critics.q_values(batch.obs, action)
    weight = batch.extras.get("weight", jnp.ones_like(y))
    error = q - y[None]
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(error), 0), batch.mask)
    spread = masked_mean(jnp.std(q, 0), batch.mask)
    metrics = {"value/q": masked_mean(q.mean(0), batch.mask), "value/spread": spread}
    if diversity:
        gradients = critics.action_gradients(batch.obs, action)
        similarity = masked_mean(gradient_similarity(gradients), batch.mask)
        loss, metrics["value/alikeness"] = loss + 0.5 * diversity * similarity, similarity
    return loss, ({**metrics, "loss/value": loss}, jnp.mean(jnp.abs(error), 0))


def actor_loss(
    actor: Policy, state: State, batch: Record, critics: CriticEnsemble, key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_pi of the module docstring (with ``subset`` by the members' mean) and entropy."""
    pi, alpha = actor(batch.obs, critics.torso(batch.obs)), jnp.exp(state.log_alpha)
    reduce = jnp.min if state.config.subset is None else jnp.mean
    values, entropy = policy_value(pi, critics, batch.obs, alpha, key=key, reduce=reduce)
    loss = -masked_mean(values, batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(entropy, batch.mask)}
    return loss, ({**metrics, "policy/alpha": alpha}, entropy)


def policy_value(
    pi: Any,
    critics: CriticEnsemble,
    obs: Obs,
    alpha: Float[Array, ""],
    *,
    key: Key[Array, ""],
    reduce: Any = jnp.min,
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """Return V(s) of the module docstring, reduced over the members by ``reduce``, and the entropy
    (continuous: its one-sample estimate)."""
    if isinstance(pi, Categorical):
        log_p, q = jax.nn.log_softmax(pi.logits), reduce(critics.all_q_values(obs), 0)
        return soft_value_discrete(q, log_p, alpha), pi.entropy()
    action, log_p = pi.sample_and_log_prob(key)
    return soft_value(reduce(critics.q_values(obs, action), 0), log_p, alpha), -log_p


def offline_target_entropy(actions: Actions, given: float | None, obs: Obs) -> Float[Array, "..."]:
    """Return H_target in nats: ``given``, or -dim(A) for a Box (Haarnoja 2018b), and for discrete
    actions a tenth of the maximum (SAC's 98 % serves exploration, which datasets do not allow)."""
    return target_entropy(actions, given, obs, share=0.1)
