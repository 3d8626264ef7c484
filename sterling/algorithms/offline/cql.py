"""Conservative Q-learning (Kumar 2020, arXiv:2006.04779) and Cal-QL (Nakamoto 2023, 2303.05479).

    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 + alpha' gap_i ]
    gap          gap_i = log int exp Q_i(s, a') da' - Q_i(s, a)                        (CQL(H))
    target       y     = r + g E_a[ min_i Q'_i(s', a) ],                    a ~ pi(.|s')
    multiplier   alpha' <- larger while E[gap] > target_gap        (or fixed, with target_gap None)
    actor, temperature   as SAC's (``online/sac.py``)

g is gamma times the world's discount; Q'_i follows Q_i by ``tau`` per update. The gap pushes down
what softmax Q would do more often than the log did. For a policy that is softmax Q, and alpha'
large enough for the log's noise, its learned value is never above its true one (theorem 3.2; a
greedier policy on logged actions may be promised more). Boxes: the integral is estimated from
``n_actions`` each of uniform actions, of pi(.|s) and of pi(.|s'), weighted by their densities.
Discrete actions: the same learner on SAC's discrete form, integral and expectations exact; its
actor is kept, instead of Q-learning's maximum, so that both kinds explore and fine-tune alike.

``calibrated`` is Cal-QL: in the gap, Q of the policy's actions counts as max(Q, R), R the return
that the log has from there on, so nothing falls below what its own policy reached and online
learning does not begin by unlearning. R has to bound V from below, so where an episode was cut the
log's smallest reward, if negative, follows for ever (as in the authors' code where each step costs
the same). Where R is not known (experience still being made) it is CQL.

Deviations from the papers: alpha' is that of the authors' code, which has the whole square where
eq. 4 has the half (alpha' there is half as large); the integral is a mean of samples, not a sum, so
``target_gap`` is smaller than theirs by log(3 n_actions); no reward scale, no cloning at the start,
actor and critics begin as SAC's, and critics are updated first; Cal-QL's target is CQL's too, where
its code takes the best of ten next actions. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.algorithms.offline import edac
from sterling.algorithms.online import sac
from sterling.equations.average import masked_mean
from sterling.equations.conservative import (
    calibrated,
    conservative_gap,
    conservative_gap_of_choices,
    multiplier_loss,
)
from sterling.equations.polyak import polyak
from sterling.equations.soft import first_alpha
from sterling.equations.value import take_action, td_target
from sterling.field_types import Count, Depth, Finite, NotNegative, Share, Whole
from sterling.nets.distributions import Categorical
from sterling.nets.encoder import Encoder, action_mask
from sterling.nets.ensemble import Twins
from sterling.nets.heads import IMPOSSIBLE, Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

MOST = math.log(1e6)  # of the multiplier's logarithm, as in the authors' code: a gap out of reach
Drawn = tuple[Float[Array, "sample batch n"], Float[Array, "sample batch"]]  # and log-densities


@config
class Config:
    """Defaults are those of the authors' code for D4RL's locomotion tasks."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics and multiplier
    actor_lr: NotNegative = 1e-4  # and for actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that target critics move per update
    penalty: NotNegative = 5.0  # alpha': weight of the gap, or of the first one with target_gap
    target_gap: Finite | None = None  # gap to hold by the multiplier, in returns; None: fixed
    calibrated: bool = False  # Cal-QL
    n_actions: Count = 10  # actions of each kind in the integral (boxes)
    backup_entropy: bool = False  # the target counts entropy, as SAC's does
    alpha: NotNegative = 1.0  # temperature at the start, or for good without tune_alpha
    tune_alpha: bool = True  # hold the policy's entropy at target_entropy
    target_entropy: Finite | None = None  # nats; None: see edac.wanted_entropy
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 256  # units per hidden layer
    depth: Depth = 3  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes."""

    actor: sac.Policy
    critics: Twins
    target: Twins
    log_alpha: Float[Array, ""]
    log_penalty: Float[Array, ""]
    normaliser: ObsNormaliser
    optimisers: tuple[optax.OptState, ...]  # critics, actor, temperature, multiplier
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform samples, for Cal-QL with the returns that the log has from there on."""
    return Transitions(
        *(config.batch, config.collect, config.learn, config.capacity, config.warmup),
        monte_carlo=float(config.gamma) if config.calibrated else None,
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for several choices at once."""
    actions = Actions.of(spec.action)
    if actions.kind == "multi":
        raise Mistake(f"cql cannot value {spec.action}; use bc")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    size = actions.outputs
    ins, outs, answers = (size, 1, 2 * size) if actions.kind == "box" else (0, size, size)
    net = MLP.uniform(keys.fold(key, "actor"), (torso.size, *hidden, answers))
    actor = sac.Policy(net, actions)
    critics = Twins.create(keys.fold(key, "critics"), torso, hidden, ins, outs)
    log_alpha = jnp.log(first_alpha(config.alpha, config.tune_alpha))
    log_penalty = jnp.log(jnp.maximum(jnp.asarray(config.penalty, jnp.float32), 1e-6))
    normaliser = ObsNormaliser.of_log(spec, config.normalise_obs)
    optimisers = tuple(adam().init(x) for x in (critics, actor, log_alpha, log_penalty))
    slow = jax.tree.map(jnp.copy, critics)
    return State(actor, critics, slow, log_alpha, log_penalty, normaliser, optimisers, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode."""
    return edac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return edac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The smaller critic's value of the policy's mode (discrete: of the policy)."""
    pi, obs = edac.policy(state, obs), state.normaliser(obs)
    if isinstance(pi, Categorical):
        nothing, key = jnp.zeros(()), jax.random.key(0)  # no entropy, no sample
        return sac.policy_value(pi, state.critics, obs, nothing, key)[0]
    return jnp.minimum(*state.critics.of_action(obs, pi.mode()))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of critics, actor, temperature and multiplier on transitions ``(batch, ...)``."""
    config, see = state.config, state.normaliser
    critic_state, actor_state, alpha_state, penalty_state = state.optimisers
    batch = dataclasses.replace(batch, obs=see(batch.obs), next_obs=see(batch.next_obs))

    y, drawn = target(state, batch, keys.fold(key, "next")), draw(state, batch, key)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(
        state.critics, state, batch, y, drawn
    )
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    alpha = jnp.exp(state.log_alpha)
    grads, (policy_metrics, entropy) = jax.grad(sac.actor_loss, has_aux=True)(
        state.actor, critics, batch, alpha, keys.fold(key, "now")
    )
    direction, actor_state = adam().update(grads, actor_state)
    actor = descend(state.actor, direction, config.actor_lr)

    log_alpha, log_penalty = state.log_alpha, state.log_penalty
    if config.tune_alpha:
        wanted = edac.wanted_entropy(actor.actions, config.target_entropy, batch.obs)
        grads = jax.grad(sac.alpha_loss)(log_alpha, entropy, wanted, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.actor_lr)
    if config.target_gap is not None:
        grads = jax.grad(multiplier_loss)(log_penalty, metrics["value/gap"], config.target_gap)
        direction, penalty_state = adam().update(grads, penalty_state)
        log_penalty = jnp.minimum(descend(log_penalty, direction, config.lr), MOST)

    slow = polyak(state.target, critics, config.tau)
    optimisers = (critic_state, actor_state, alpha_state, penalty_state)
    learned = State(actor, critics, slow, log_alpha, log_penalty, see, optimisers, config)
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """y of the module docstring."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    alpha = jnp.exp(state.log_alpha) if state.config.backup_entropy else jnp.zeros(())
    next_value, _ = sac.policy_value(pi, state.target, batch.next_obs, alpha, key)
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def critic_loss(
    critics: Twins, state: State, batch: Record, y: Float[Array, "batch"], drawn: Drawn | None
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_Q of the module docstring; also each row's |TD error|, averaged over the critics."""
    config = state.config
    penalty = config.penalty if config.target_gap is None else jnp.exp(state.log_penalty)
    loss, (metrics, error) = sac.critic_loss(critics, batch, y)
    gap = masked_mean(jnp.sum(gaps(critics, batch, drawn, config), 0), batch.mask)
    total = loss + 0.5 * penalty * gap
    return total, ({**metrics, "loss/value": total, "value/gap": 0.5 * gap}, error)


def gaps(
    critics: Twins, batch: Record, drawn: Drawn | None, config: Config
) -> Float[Array, "2 batch"]:
    """gap_i of the module docstring; with ``drawn`` None for choices."""
    action: Array = batch.action
    mask = action_mask(batch.obs)
    if drawn is None:
        q = jnp.stack(critics.of_choices(batch.obs))
        logged = jnp.stack([take_action(each, action) for each in q])
        seen = lifted(q, batch, config)
        if mask is not None:
            seen = jnp.where(mask[None], seen, IMPOSSIBLE)
        return conservative_gap_of_choices(seen, logged)
    features, (actions, log_density) = critics.torso(batch.obs), drawn
    wide = jnp.broadcast_to(features[None], (*log_density.shape, features.shape[-1]))
    q = jnp.stack(critics.of_features(wide, actions), 1)  # sample, critic, batch
    logged = jnp.stack(critics.of_features(features, action.reshape(batch.mask.size, -1)))
    uniform, own = jnp.split(jnp.moveaxis(q, 0, -1), [config.n_actions], -1)
    q = jnp.concatenate([uniform, lifted(own, batch, config)], -1)
    log_density = jnp.broadcast_to(log_density[:, None], (*log_density.shape[:1], *logged.shape))
    return conservative_gap(jnp.moveaxis(q, -1, 0), log_density, logged)


def lifted(
    q: Float[Array, "2 batch k"], batch: Record, config: Config
) -> Float[Array, "2 batch k"]:
    """Q of the policy's actions as the gap sees it: for Cal-QL max(Q, R)."""
    if not config.calibrated:
        return q
    reference = jnp.broadcast_to(batch.extras["monte_carlo"][None, :, None], q.shape)
    return calibrated(q, reference)


def draw(state: State, batch: Record, key: Key[Array, ""]) -> Drawn | None:
    """Actions for the integral, uniform ones first, and their log-densities; None for choices."""
    policies = [state.actor(obs, state.critics.torso(obs)) for obs in (batch.obs, batch.next_obs)]
    if isinstance(policies[0], Categorical):
        return None
    count, size = state.config.n_actions, state.actor.actions.outputs
    shape = (count, batch.mask.size, size)
    actions = [jax.random.uniform(keys.fold(key, "uniform"), shape, minval=-1.0, maxval=1.0)]
    log_density = [jnp.full(shape[:2], -size * math.log(2.0))]
    for name, pi in zip(("policy", "successor"), policies, strict=True):
        each = jax.vmap(pi.sample_and_log_prob)(keys.deal(keys.fold(key, name), "draw", count))
        actions.append(each[0])
        log_density.append(each[1])
    return jnp.concatenate(actions), jnp.concatenate(log_density)
