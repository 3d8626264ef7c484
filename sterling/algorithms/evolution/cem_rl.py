"""CEM-RL: the cross-entropy method with TD3's gradients (Pourchot & Sigaud 2019, arXiv:1810.01222).

    members      x_i = m + sqrt(v) e_i,   x_{n+1-i} = m - sqrt(v) e_i,   e_i ~ N(0, I)
    critics      y   = r + g min_j Q'_j(s', clip(x_i(s') + clip(e', -c, c), -1, 1)),
                 L_Q = 1/2 sum_j E[ (Q_j(s, a) - y)^2 ],   the learning members x_i in turn
    gradients    L_i = -E[ Q_1(s, x_i(s)) ]                for the first half of the members
    elites       k of n members, the best first, with w_k ~ log((n/2 + 1) / k), sum w = 1
    mean         m  <- sum_k w_k x_k
    variance     v  <- 2/n sum_k w_k (x_k - m_old)^2 + d
    noise        d  <- 0.95 d + 0.05 d_final                                 (before v is computed)

Every env is a member, which acts without noise and begins an episode in every iteration; all rows
go into one replay. The first half of a new population learns by Adam, begun anew, from the critics
that all of them share, before it acts. Then members are ranked by their returns. The policy is m.

As in the authors' code, and unlike equation 2 of the paper, v has the factor 2/n, members are
mirrored, and every update of the critics moves their targets. In an iteration of N steps the
critics make N updates, then every learning member N.
Deviations: the members learn side by side, from the same batches and the same critics, after all
updates of those (in the code a member learns right after the updates that had it in the target);
critics have ReLUs (code: leaky ones). A member takes ``limit`` steps: its return is the mean over
the episodes that it ends in them, or that of its unfinished episode if it ends none (code: one
whole episode). A member whose environment failed in that episode does not count.
Evidence: benchmarks/results/cem-rl.md; an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import td3
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole, Width
from sterling.needs.feed import FRESH
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.nets.q_ensemble import TwinCritics
from sterling.types import Action, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config

NOISE_KEPT = 0.95  # share of d that an iteration keeps


@config
class Config:
    """Defaults are those of the authors' code (github.com/apourchot/CEM-RL)."""

    lr: NotNegative = 1e-3  # Adam's step size, for critics and members
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which the critics' targets follow, per update
    target_noise: NotNegative = 0.2  # standard deviation of the noise e' on target actions
    noise_clip: Width = 0.5  # c: bound of that noise
    members: Count = 10  # n: members of the population, as many as there are envs
    limit: Count = 1000  # steps of each member per iteration
    updates_per_step: Count = 1  # updates of the critics, and of each learner, per step of all envs
    variance_initial: NotNegative = 1e-3  # first v
    noise_initial: NotNegative = 1e-3  # first d
    noise_final: NotNegative = 1e-5  # d_final: what d falls to
    batch: Count = 100  # transitions per update
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 10_000  # steps before members take gradients
    width: Sizes = (400, 300)  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "tanh"  # of the members: tanh, relu, silu, elu or gelu
    critic_activation: Activation = "relu"  # of the critics
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    nets: td3.Nets  # the actor m, and the critics
    target: TwinCritics
    variance: Float[Array, "n"]  # v
    noise: Float[Array, ""]  # d
    members: td3.Actor  # leaves (member, ...); the first half learns by gradients
    critic_optimiser: optax.OptState
    actor_optimisers: optax.OptState  # of the first half, leaves (member, ...)
    updates: Int[Array, ""]  # of the critics
    config: Config


def needs(config: Config) -> Needs:
    """Ask for an episode of every env, and for transitions of all of them."""
    steps = config.members * config.limit
    wait = -(-config.warmup // steps)
    count: Any = {"batch": config.batch, "updates": config.updates_per_step * steps, "after": wait}
    feeds = (Feed(FRESH), Feed(name="critics", **count), Feed(name="actors", **count))
    return Needs(config.limit, feeds, config.capacity, members=config.members)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box, and for a number
    of envs that is not that of the members, which must be even and at least 4."""
    supported_actions("cem-rl", spec.action, ("box",), ONLINE)
    if config.members % 2 or config.members < 4:
        raise Mistake(f"cem-rl needs an even number of members from 4, not {config.members}.")
    if spec.envs != config.members:
        raise Mistake(
            f"every env of cem-rl is a member: set members={spec.envs} or envs={config.members}"
        )
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    actor = td3.create_actor(key, torso, spec, config)
    hidden, inputs = torso.hidden_sizes(config.width, config.depth), actor.actions.outputs
    kind: Any = {"activation": config.critic_activation, "layer_norm": config.layer_norm}
    own_key = random_keys.fold(key, "critics")
    critics = TwinCritics.create(own_key, torso, hidden, inputs, **kind)
    variance = jnp.full(ravel_pytree(actor)[0].size, config.variance_initial, jnp.float32)
    members = draw_members(random_keys.fold(key, "members"), actor, variance, config.members)
    return State(
        td3.Nets(actor, critics),
        jax.tree.map(jnp.copy, critics),
        variance,
        jnp.asarray(config.noise_initial, jnp.float32),
        members,
        adam().init(critics),
        new_optimisers(members, config),
        jnp.zeros((), jnp.int32),
        config,
    )


def draw_members(
    key: Key[Array, ""], mean: td3.Actor, variance: Float[Array, "n"], count: int
) -> td3.Actor:
    """Return ``count`` members around ``mean``, the second half mirrored, leaves (member, ...)."""
    middle, as_actor = ravel_pytree(mean)
    e = jax.random.normal(key, (count // 2, middle.size))
    return jax.vmap(as_actor)(middle[None] + jnp.sqrt(variance)[None] * jnp.concatenate([e, -e]))


def new_optimisers(members: td3.Actor, config: Config) -> optax.OptState:
    """Return Adam's state for each member of the first half, before any update."""
    return jax.vmap(adam().init)(first_half(members, config))


def first_half(members: td3.Actor, config: Config) -> td3.Actor:
    """Return the members that learn by gradients."""
    return jax.tree.map(lambda x: x[: config.members // 2], members)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return m's actions; with ``explore`` those of the member of each env."""
    if not explore:
        return td3.act(state, obs, key, False)
    features, members = state.nets.critics.torso(obs), state.members
    envs = features.shape[0]
    if envs != state.config.members:
        index = jnp.arange(envs, dtype=jnp.int32) % state.config.members
        members = jax.tree.map(lambda x: x[index], members)
    action = jax.vmap(lambda member, each: member(each))(members, features)
    return action.reshape(envs, *state.nets.actor.actions.sizes), {}


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return min_j Q_j(s, m(s)), the smaller critic's value of the policy's action."""
    return td3.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Move m and v towards the members with the highest returns, and draw new members."""
    config, half = state.config, state.config.members // 2
    returns, counts = member_returns(batch)
    order = jnp.argsort(jnp.where(counts, -returns, jnp.inf), stable=True)[:half]
    weight = elite_weights(half, counts.sum(dtype=jnp.int32))
    middle, as_actor = ravel_pytree(state.nets.actor)
    elites = jax.vmap(lambda each: ravel_pytree(each)[0])(state.members)[order]
    noise = NOISE_KEPT * state.noise + (1.0 - NOISE_KEPT) * config.noise_final
    spread = weight @ jnp.square(elites - middle[None]) / half + noise
    known = counts.any()
    middle = jnp.where(known, weight @ elites, middle)
    variance = jnp.where(known, spread, state.variance)
    actor = as_actor(middle)
    members = draw_members(key, actor, variance, config.members)
    metrics = {
        "population/best": jnp.max(returns, where=counts, initial=-jnp.inf),
        "population/mean": jnp.mean(returns, where=counts),
        "population/taught": weight @ (order < half).astype(jnp.float32),
        "population/deviation": jnp.sqrt(variance.mean()),
        "policy/norm": global_norm(actor),
    }
    metrics = {name: jnp.where(known, x, 0.0) for name, x in metrics.items()}
    learned = dataclasses.replace(
        state,
        nets=td3.Nets(actor, state.nets.critics),
        variance=variance,
        noise=noise,
        members=members,
        actor_optimisers=new_optimisers(members, config),
    )
    return learned, Signals(metrics)


def member_returns(batch: Record) -> tuple[Float[Array, "env"], Bool[Array, "env"]]:
    """Return every member's mean return over the episodes that it ended in a rollout ``(time,
    env)``, or that of its unfinished episode if it ended none; and which members count."""

    def add_row(totals: Any, row: Any) -> tuple[Any, None]:
        (episode, ended, count), (reward, last, mask) = totals, row
        episode = episode + jnp.where(mask, reward, 0.0)
        ends = last & mask
        ended, count = ended + jnp.where(ends, episode, 0.0), count + ends.astype(count.dtype)
        return (jnp.where(last, 0.0, episode), ended, count), None

    zero = jnp.zeros_like(batch.reward[0])
    rows = (batch.reward, batch.last, batch.mask)
    (episode, ended, count), _ = jax.lax.scan(add_row, (zero, zero, zero), rows)
    returns = jnp.where(count > 0.0, ended / jnp.maximum(count, 1.0), episode)
    return returns, (count > 0.0) | ~batch.last.any(0)


def elite_weights(half: int, count: Int[Array, ""]) -> Float[Array, "half"]:
    """Return w of the best members; zero beyond the ``count`` members that count."""
    rank = jnp.arange(1, half + 1, dtype=jnp.float32)
    weight = jnp.where(rank <= count.astype(jnp.float32), jnp.log((half + 1.0) / rank), 0.0)
    return weight / jnp.maximum(weight.sum(), 1e-8)


def learn_critics(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics and their targets once, with the member whose turn it is in the target."""
    config, half = state.config, state.config.members // 2
    steps = config.updates_per_step * config.members * config.limit
    turn = jnp.mod(state.updates, steps) * half // steps
    member: td3.Actor = jax.tree.map(lambda x: x[turn], state.members)
    action = td3.noisy(member(state.target.torso(batch.next_obs)), key, config)
    next_value = jnp.minimum(*state.target.q_values(batch.next_obs, action))
    y = td_target(batch.reward, config.gamma * batch.discount, next_value)
    updated, signals = td3.update_critics(state, batch, y, td3.critic_loss)
    target = polyak(state.target, updated.nets.critics, config.tau)
    return dataclasses.replace(updated, target=target), signals


def learn_actors(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the first half of the members once. ``key`` is not used."""

    def step(member: td3.Actor, optimiser: Any) -> tuple[td3.Actor, Any]:
        grads = jax.grad(td3.actor_loss)(member, state.nets.critics, batch)
        direction, optimiser = adam().update(grads, optimiser)
        return descend(member, direction, state.config.lr), optimiser

    half = first_half(state.members, state.config)
    learned, optimisers = jax.vmap(step)(half, state.actor_optimisers)
    members = jax.tree.map(lambda x, new: x.at[: len(new)].set(new), state.members, learned)
    return dataclasses.replace(state, members=members, actor_optimisers=optimisers), Signals({})
