"""Soft actor-critic (Haarnoja 2018b, arXiv:1812.05905), for continuous and discrete actions.

    value        V(s)  = E_a[ min_i Q_i(s, a) - alpha log pi(a|s) ],     a ~ pi(.|s)
    target       y     = r + g V'(s')
    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor        L_pi  = -E[ V(s) ]
    temperature  L_a   = E[ alpha (H(pi(.|s)) - H_target) ]

g is gamma times the world's discount; V' uses target critics that follow by ``tau`` per update;
w is 1, or the importance weight of prioritised replay. Continuous actions: pi is a normal squashed
to (-1, 1), E_a one reparameterised sample, H_target = -dim(A). Discrete actions (Christodoulou
2019, arXiv:1910.07207): pi is categorical, E_a and H exact sums, H_target = 0.98 log |A|, of the
actions allowed in s.

Deviations from the papers: the three updates use one another's results in the order critics,
actor, temperature; pictures are encoded by one torso, which only the critics' loss trains and the
policy looks through (Yarats 2021). No reward scale: alpha is tuned instead. A sum of ``n_step``
rewards is not corrected for the policy having changed, and has no entropy between. ``correction``
stays what it is, as in Dopamine's Rainbow (Schaul 2016, arXiv:1511.05952, anneals it to 1).
Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.soft import first_alpha, soft_value, soft_value_of_choices, temperature_loss
from sterling.equations.value import take_action, td_target
from sterling.field_types import Count, Depth, Finite, NotNegative, Share, Whole
from sterling.nets.distributions import Categorical, Normal, TanhNormal
from sterling.nets.encoder import Encoder, action_mask
from sterling.nets.ensemble import Twins
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those published for MuJoCo (Haarnoja 2018b, table 1 and the authors' code)."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that target critics move per update
    alpha: NotNegative = 1.0  # temperature at the start, or for good without tune_alpha
    tune_alpha: bool = True  # hold the policy's entropy at target_entropy
    target_entropy: Finite | None = None  # nats; None: as in the docstring above
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of its importance weights, constant
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class Policy(eqx.Module):
    """pi(.|s), from the features of an observation."""

    net: MLP
    actions: Actions = eqx.field(static=True)
    least: float = eqx.field(static=True, default=-20.0)  # bound of the log deviation; above: 2

    def __call__(self, obs: Obs, features: Float[Array, "... features"]) -> Any:
        """A TanhNormal, or for discrete actions a Categorical."""
        outputs = self.net(features)
        if self.actions.kind == "discrete":
            return self.actions.distribution(outputs, action_mask(obs))
        mean, log_std = jnp.split(outputs, 2, -1)
        return TanhNormal(Normal(mean, jnp.clip(log_std, self.least, 2.0)))


class State(eqx.Module):
    """Everything that changes."""

    actor: Policy
    critics: Twins
    target: Twins
    log_alpha: Float[Array, ""]
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform or prioritised replay."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are neither a box nor one choice."""
    actions = Actions.of(spec.action)
    if actions.kind == "multi":
        raise Mistake(f"sac cannot act in {spec.action}; use ppo")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    size = actions.outputs
    ins, outs, answers = (size, 1, 2 * size) if actions.kind == "box" else (0, size, size)
    actor = Policy(MLP.uniform(keys.fold(key, "actor"), (torso.size, *hidden, answers)), actions)
    critics = Twins.create(keys.fold(key, "critics"), torso, hidden, ins, outs)
    log_alpha = jnp.log(first_alpha(config.alpha, config.tune_alpha))
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    return State(actor, critics, jax.tree.map(jnp.copy, critics), log_alpha, optimisers, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode; continuous actions in the space's own shape."""
    pi = state.actor(obs, state.critics.torso(obs))
    if isinstance(pi, Categorical):
        return (pi.sample(key) if explore else pi.mode()), {}
    action = pi.sample_and_log_prob(key)[0] if explore else pi.mode()
    return state.actor.actions.shaped(action), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    pi = state.actor(obs, state.critics.torso(obs))
    return pi.log_prob(state.actor.actions.flat(action))


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The smaller critic's value of the policy's mode (discrete: of the policy)."""
    pi = state.actor(obs, state.critics.torso(obs))
    if isinstance(pi, Categorical):
        q = jnp.minimum(*state.critics.of_choices(obs))
        return jnp.sum(jax.nn.softmax(pi.logits) * q, -1)
    return jnp.minimum(*state.critics.of_action(obs, pi.mode()))


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The smaller critic's value of actions."""
    return jnp.minimum(*logged(state.critics, obs, action))


def learn(state: Any, batch: Record, key: Key[Array, ""], judge: Any = None) -> tuple[Any, Signals]:
    """One update of critics, actor and temperature on transitions ``(batch, ...)``; the actor goes
    by the critics, or what ``judge`` makes of them. Fields that a state has beside these stay."""
    config, (critic_state, actor_state, alpha_state) = state.config, state.optimisers
    next_key, key = keys.fold(key, "next"), keys.fold(key, "now")

    y = target(state, batch, next_key)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    alpha, judges = jnp.exp(state.log_alpha), judge(critics) if judge else critics
    grads, (policy_metrics, entropy) = jax.grad(actor_loss, has_aux=True)(
        state.actor, judges, batch, alpha, key
    )
    direction, actor_state = adam().update(grads, actor_state)
    actor = descend(state.actor, direction, config.lr)

    log_alpha = state.log_alpha
    if config.tune_alpha:
        wanted = target_entropy(actor.actions, config.target_entropy, batch.obs, share=0.98)
        grads = jax.grad(alpha_loss)(log_alpha, entropy, wanted, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)

    slow = polyak(state.target, critics, config.tau)
    own = {"actor": actor, "critics": critics, "target": slow, "log_alpha": log_alpha}
    learned = dataclasses.replace(state, **own, optimisers=(critic_state, actor_state, alpha_state))
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """y of the module docstring."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    alpha = jnp.exp(state.log_alpha)
    next_value, _ = policy_value(pi, state.target, batch.next_obs, alpha, key)
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def logged(
    critics: Twins, obs: Obs, action: Action
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """Q_1(s, a) and Q_2(s, a)."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        first, second = critics.of_choices(obs)
        return take_action(first, action), take_action(second, action)
    return critics.of_action(obs, action.reshape(len(action), -1))


def critic_loss(
    critics: Twins, batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_Q of the module docstring; also each row's |TD error|, averaged over the critics."""
    values = logged(critics, batch.obs, batch.action)
    weight = batch.extras.get("weight", jnp.ones_like(y))
    errors = jnp.stack([q - y for q in values])
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(errors), 0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(values[0], batch.mask)}
    return loss, (metrics, jnp.mean(jnp.abs(errors), 0))


def actor_loss(
    actor: Policy, critics: Twins, batch: Record, alpha: Float[Array, ""], key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_pi of the module docstring; also each row's entropy."""
    pi = actor(batch.obs, critics.torso(batch.obs))
    values, entropy = policy_value(pi, critics, batch.obs, alpha, key)
    loss = -masked_mean(values, batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(entropy, batch.mask)}
    return loss, (metrics, entropy)


def alpha_loss(
    log_alpha: Float[Array, ""],
    entropy: Float[Array, "batch"],
    wanted: Float[Array, "..."],
    batch: Record,
) -> Float[Array, ""]:
    """L_a of the module docstring."""
    return masked_mean(temperature_loss(log_alpha, entropy, wanted), batch.mask)


def policy_value(
    pi: TanhNormal | Categorical,
    critics: Twins,
    obs: Obs,
    alpha: Float[Array, ""],
    key: Key[Array, ""],
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """V(s) of the module docstring, and the entropy (continuous: its one-sample estimate)."""
    if isinstance(pi, Categorical):
        log_prob = jax.nn.log_softmax(pi.logits)
        q = jnp.minimum(*critics.of_choices(obs))
        return soft_value_of_choices(q, log_prob, alpha), pi.entropy()
    action, log_prob = pi.sample_and_log_prob(key)
    return soft_value(jnp.minimum(*critics.of_action(obs, action)), log_prob, alpha), -log_prob


def target_entropy(
    actions: Actions, given: float | None, obs: Obs, share: float
) -> Float[Array, "..."]:
    """H_target: ``given``, or -dim(A) for boxes, and for choices the ``share`` of what they could
    have, per row where observations say which are allowed."""
    if given is not None or actions.kind == "box":
        return jnp.asarray(-float(actions.outputs) if given is None else given)
    mask = action_mask(obs)
    if mask is None:
        return jnp.asarray(share * math.log(actions.outputs))
    return share * jnp.log(jnp.maximum(jnp.sum(mask, -1).astype(jnp.float32), 1.0))
