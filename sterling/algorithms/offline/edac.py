"""SAC-N and ensemble-diversified actor-critic (An 2021, arXiv:2110.01548).

    value        V(s)  = E_a[ min_i Q_i(s, a) - alpha log pi(a|s) ],      a ~ pi(.|s), i = 1 ... N
    target       y     = r + g V'(s')
    critics      L_Q   = 1/2 ( sum_i E[ w (Q_i(s, a) - y)^2 ] + eta D )
    diversity    D     = E[ 1/(N-1) sum_{i != j} cos( grad_a Q_i(s, a), grad_a Q_j(s, a) ) ]
    actor        L_pi  = -E[ V(s) ]
    temperature  L_a   = E[ alpha (H(pi(.|s)) - H_target) ]

g is gamma times the world's discount; V' uses target critics that follow by ``tau`` per update.
Where the log says little the members disagree, and the smallest of many is pessimistic there; D
makes them disagree about actions, so that fewer do. ``diversity=None`` (eta = 0) is SAC-N, with
two members SAC. Discrete actions: SAC-N with exact sums; there is no slope to diversify.

For learning on while a log is at hand (Ball 2023, arXiv:2302.02948): ``subset`` takes the target's
minimum over so many members drawn anew for each update, and improves the policy against the mean of
all (Chen 2021, algorithm 1); ``layer_norm`` bounds values far from the data; ``backup_entropy``
False leaves the entropy out of the target.

Deviations: L_Q is halved, as everywhere here; networks begin as SAC's, and critics are updated
first. The policy's log deviation lies in (-5, 2), as in the authors' code (SAC's and RLPD's: -20,
2). As RLPD: H_target is not halved, and the actor is updated as often as the critics.
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

from sterling import keys
from sterling.algorithms.online.sac import Policy, alpha_loss, target_entropy
from sterling.equations.average import masked_mean
from sterling.equations.diversity import alikeness
from sterling.equations.polyak import polyak
from sterling.equations.soft import first_alpha, soft_value, soft_value_of_choices
from sterling.equations.value import td_target
from sterling.field_types import Count, Depth, Finite, NotNegative, Share, Whole
from sterling.nets.distributions import Categorical
from sterling.nets.encoder import Encoder
from sterling.nets.ensemble import Ensemble
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of An 2021 for D4RL's HalfCheetah and Walker2d (appendix)."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that target critics move per update
    members: Count = 10  # N (Hopper: 50)
    diversity: NotNegative | None = 1.0  # eta; None: SAC-N
    subset: Count | None = None  # members drawn for a target (RLPD: 1 or 2); None: all
    layer_norm: bool = False  # normalise the critics' hidden layers (RLPD)
    backup_entropy: bool = True  # the target counts entropy
    alpha: NotNegative = 1.0  # temperature at the start, or for good without tune_alpha
    tune_alpha: bool = True  # hold the policy's entropy at target_entropy
    target_entropy: Finite | None = None  # nats; None: see ``wanted_entropy``
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    width: Count = 256  # units per hidden layer
    depth: Depth = 3  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes."""

    actor: Policy
    critics: Ensemble
    target: Ensemble
    log_alpha: Float[Array, ""]
    normaliser: ObsNormaliser
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    config: Config


def needs(config: Config) -> Transitions:
    """Single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for several choices, and for undefined diversity."""
    actions = Actions.of(spec.action)
    check(actions, spec, config)
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    size = actions.outputs
    ins, outs, answers = (size, 1, 2 * size) if actions.kind == "box" else (0, size, size)
    net = MLP.uniform(keys.fold(key, "actor"), (torso.size, *hidden, answers))
    actor = Policy(net, actions, least=-5.0)  # the authors' bound
    many, norm, key = config.members, config.layer_norm, keys.fold(key, "critics")
    critics = Ensemble.create(key, torso, hidden, ins, outs, members=many, layer_norm=norm)
    slow = jax.tree.map(jnp.copy, critics)
    log_alpha = jnp.log(first_alpha(config.alpha, config.tune_alpha))
    see = ObsNormaliser.of_log(spec, config.normalise_obs)
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    return State(actor, critics, slow, log_alpha, see, optimisers, config)


def check(actions: Actions, spec: Spec, config: Config) -> None:
    """Raise the Mistakes of ``init``."""
    if actions.kind == "multi":
        raise Mistake(f"edac cannot value {spec.action}; use bc")
    if config.diversity and actions.kind == "discrete":
        raise Mistake(f"diversity is not defined in {spec.action}; set diversity=None (SAC-N)")
    if config.diversity and config.members < 2:
        raise Mistake("one member cannot be diverse; set members=2 or more, or diversity=None")
    if config.subset is not None and not 1 <= config.subset <= config.members:
        raise Mistake(f"a subset of {config.subset} among {config.members}; set 1 to members")


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode. Here and in ``log_prob`` a state is anything with
    ``actor``, ``critics`` and ``normaliser``, so that learners like this one can call them."""
    pi = policy(state, obs)
    if isinstance(pi, Categorical):
        return (pi.sample(key) if explore else pi.mode()), {}
    action = pi.sample_and_log_prob(key)[0] if explore else pi.mode()
    return state.actor.actions.shaped(action), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "..."]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return policy(state, obs).log_prob(state.actor.actions.flat(action))


def policy(state: Any, obs: Obs) -> Any:
    """pi(.|s) of observations as the world gives them."""
    obs = state.normaliser(obs)
    return state.actor(obs, state.critics.torso(obs))


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The smallest critic's value of the policy's mode (discrete: of the policy)."""
    pi, obs = policy(state, obs), state.normaliser(obs)
    if isinstance(pi, Categorical):
        return jnp.sum(jax.nn.softmax(pi.logits) * state.critics.of_choices(obs).min(0), -1)
    return state.critics.of_action(obs, pi.mode()).min(0)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of critics, actor and temperature on transitions ``(batch, ...)``."""
    config, see = state.config, state.normaliser
    critic_state, actor_state, alpha_state = state.optimisers
    batch = dataclasses.replace(batch, obs=see(batch.obs), next_obs=see(batch.next_obs))

    y = target(state, batch, keys.fold(key, "next"))
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(
        state.critics, batch, y, config.diversity
    )
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    grads, (policy_metrics, entropy) = jax.grad(actor_loss, has_aux=True)(
        state.actor, state, batch, critics, keys.fold(key, "now")
    )
    direction, actor_state = adam().update(grads, actor_state)
    actor = descend(state.actor, direction, config.lr)

    log_alpha = state.log_alpha
    if config.tune_alpha:
        wanted = wanted_entropy(actor.actions, config.target_entropy, batch.obs)
        grads = jax.grad(alpha_loss)(log_alpha, entropy, wanted, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)

    slow = polyak(state.target, critics, config.tau)
    states = critic_state, actor_state, alpha_state
    learned = State(actor, critics, slow, log_alpha, see, states, config)
    return learned, Signals({**metrics, **policy_metrics}, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """y of the module docstring."""
    config, critics = state.config, state.target
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    if config.subset is not None:
        order = jax.random.permutation(keys.fold(key, "members"), config.members)
        critics = critics.members(order[: config.subset])
    alpha = jnp.exp(state.log_alpha) if config.backup_entropy else jnp.zeros(())
    next_value, _ = policy_value(pi, critics, batch.next_obs, alpha, key=key)
    return td_target(batch.reward, config.gamma * batch.discount, next_value)


def critic_loss(
    critics: Ensemble, batch: Record, y: Float[Array, "batch"], diversity: float | None
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_Q of the module docstring; also each row's |TD error|, averaged over the members."""
    action: Array = batch.action
    if jnp.issubdtype(action.dtype, jnp.integer):
        choices = critics.of_choices(batch.obs)
        q = jnp.take_along_axis(choices, action[None, :, None], -1)[..., 0]
    else:
        action = action.reshape(batch.mask.size, -1)
        q = critics.of_action(batch.obs, action)
    weight = batch.extras.get("weight", jnp.ones_like(y))
    error = q - y[None]
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(error), 0), batch.mask)
    spread = masked_mean(jnp.std(q, 0), batch.mask)
    metrics = {"value/q": masked_mean(q.mean(0), batch.mask), "value/spread": spread}
    if diversity:
        alike = masked_mean(alikeness(critics.slopes(batch.obs, action)), batch.mask)
        loss, metrics["value/alikeness"] = loss + 0.5 * diversity * alike, alike
    return loss, ({**metrics, "loss/value": loss}, jnp.mean(jnp.abs(error), 0))


def actor_loss(
    actor: Policy, state: State, batch: Record, critics: Ensemble, key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_pi of the module docstring, with ``subset`` of the members' mean; also the entropy."""
    pi, alpha = actor(batch.obs, critics.torso(batch.obs)), jnp.exp(state.log_alpha)
    reduce = jnp.min if state.config.subset is None else jnp.mean
    values, entropy = policy_value(pi, critics, batch.obs, alpha, key=key, reduce=reduce)
    loss = -masked_mean(values, batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(entropy, batch.mask)}
    return loss, ({**metrics, "policy/alpha": alpha}, entropy)


def policy_value(
    pi: Any,
    critics: Ensemble,
    obs: Obs,
    alpha: Float[Array, ""],
    *,
    key: Key[Array, ""],
    reduce: Any = jnp.min,
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """V(s) of the module docstring, or with another ``reduce`` over the members; and the entropy
    (continuous: its one-sample estimate)."""
    if isinstance(pi, Categorical):
        log_p, q = jax.nn.log_softmax(pi.logits), reduce(critics.of_choices(obs), 0)
        return soft_value_of_choices(q, log_p, alpha), pi.entropy()
    action, log_p = pi.sample_and_log_prob(key)
    return soft_value(reduce(critics.of_action(obs, action), 0), log_p, alpha), -log_p


def wanted_entropy(actions: Actions, given: float | None, obs: Obs) -> Float[Array, "..."]:
    """H_target in nats: ``given``, or -dim(A) for boxes (Haarnoja 2018b), and for choices a tenth
    of what they could have: SAC's 98 % is meant to explore, and a log cannot be explored."""
    return target_entropy(actions, given, obs, share=0.1)
