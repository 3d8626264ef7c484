"""Evolution strategies (Salimans 2017, arXiv:1703.03864, as OpenAI's code has them).

    members     theta_2j = theta + sigma e_j,  theta_2j+1 = theta - sigma e_j      e_j ~ N(0, I)
    fitness     F_i = return of one whole episode that member i plays
    shaping     u_i = (rank of F_i) / (n - 1) - 1/2,  equal returns have the mean of their ranks
    ascent      g = 1/n sum_j (u_2j - u_2j+1) e_j
    update      theta <- theta - alpha Adam(-g + lambda theta)                     (weight decay)

Every env is a member: with n envs there are n / 2 pairs. A member is made again from its key where
its direction is needed, so no perturbation is stored. As in the authors' code, and unlike equation
1, g is not divided by sigma: Adam does not see scales, and the decay is measured against ranks.
Deviations: equal returns share their ranks, so that a pair of equals moves nothing (the code's
order of sorting would prefer one side); a pair in which one member's world answered NaN does not
count; observations are normalised by the moments of all that was seen, not of a hundredth of it,
and no noise is added to actions. Gradients, values and discounts there are none.

Steps are counted as planned, ``limit`` of every env in an iteration; ``population/steps`` says how
many an iteration really lived. Evidence: benchmarks/results/openes.md.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.field_types import Activation, Count, Depth, NotNegative
from sterling.needs import EPISODES
from sterling.nets.encoder import Encoder, action_mask
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.types import Action, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are those of the authors' code for MuJoCo, but for ``limit`` and ``width``."""

    lr: NotNegative = 0.01  # alpha: Adam's step size
    noise: NotNegative = 0.02  # sigma: deviation of the members' parameters
    weight_decay: NotNegative = 0.005  # lambda
    limit: Count = 1000  # steps after which an episode counts as it stands
    normalise_obs: bool = True  # running mean and deviation
    width: Count = 64  # units per hidden layer
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu


class Nets(eqx.Module):
    """The policy; ``torso`` encodes pictures and has nothing to learn for vectors."""

    torso: Encoder
    policy: MLP
    actions: Actions = eqx.field(static=True)


class State(eqx.Module):
    """Everything that changes."""

    nets: Nets  # theta
    optimiser: optax.OptState
    obs_statistics: ObsNormaliser
    config: Config


def needs(config: Config) -> Needs:
    """A whole episode of every env."""
    return Needs(config.limit, (Feed(EPISODES),))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent."""
    if spec.envs % 2:
        raise Mistake(f"openes perturbs in pairs; give an even number of envs, not {spec.envs}")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    actions = Actions.of(spec.action)
    sizes = (torso.size, *(config.width,) * (config.depth if torso.is_flat else 1))
    activation = config.activation if torso.is_flat else "relu"
    policy = MLP.orthogonal(keys.fold(key, "policy"), (*sizes, actions.outputs), activation, 0.01)
    nets = Nets(torso, policy, actions)
    seen = ObsNormaliser.create(spec.obs, config.normalise_obs)
    return State(nets, adam().init(nets), seen, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """The policy's mode: what explores is the population."""
    nets = state.nets
    outputs = nets.policy(nets.torso(state.obs_statistics(obs)))
    pi = nets.actions.distribution(outputs, action_mask(obs))
    return nets.actions.shaped(pi.mode()), {}


def member(state: State, key: Key[Array, ""], env: Int[Array, ""]) -> State:
    """The state by which one env acts: theta + sigma e in even ones, theta - sigma e in odd."""
    side = state.config.noise * (1 - 2 * (env % 2)).astype(jnp.float32)
    step = direction(key, env // 2, state.nets)
    moved = jax.tree.map(lambda x, e: x + side * e, state.nets, step)
    return eqx.tree_at(lambda state: state.nets, state, moved)


def direction(key: Key[Array, ""], pair: Int[Array, ""], like: Nets) -> Nets:
    """e of one pair: standard normal numbers in the form of the parameters."""
    leaves, form = jax.tree.flatten(like)
    drawn = jax.random.normal(keys.fold(key, "direction", pair), (sum(x.size for x in leaves),))
    made, start = [], 0
    for leaf in leaves:
        made.append(drawn[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(form, made)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One step along the directions whose members did better than their opposites."""
    config, theta = state.config, state.nets
    pairs = batch.mask.reshape(-1, 2).all(1)  # in which both are sound
    counts = jnp.repeat(pairs, 2)
    u = shaped(batch.reward, counts).reshape(-1, 2)
    weight = jnp.where(pairs, u[:, 0] - u[:, 1], 0.0) / number(counts, 1)

    def along(total: Nets, each: tuple[Array, Array]) -> tuple[Nets, None]:
        pair, share = each
        step = direction(batch.start.key, pair, theta)
        return jax.tree.map(lambda sum_, e: sum_ + share * e, total, step), None

    every = (jnp.arange(len(pairs), dtype=jnp.int32), weight)
    ascent, _ = jax.lax.scan(along, jax.tree.map(jnp.zeros_like, theta), every)
    down = jax.tree.map(lambda g, x: config.weight_decay * x - g, ascent, theta)
    step, optimiser = adam().update(down, state.optimiser)
    seen = state.obs_statistics.joined(batch.start.seen, batch.mask)
    best = jnp.max(batch.reward, where=batch.mask, initial=-math.inf)
    lived = batch.extras["episode/length"].sum(where=batch.mask)
    metrics = {
        "population/best": jnp.where(batch.mask.any(), best, 0.0),
        "population/steps": lived.astype(jnp.float32),
        "loss/grad_norm": global_norm(ascent),
        "policy/norm": global_norm(theta),
    }
    return State(descend(theta, step, config.lr), optimiser, seen, config), Signals(metrics)


def shaped(returns: Float[Array, "env"], counts: Bool[Array, "env"]) -> Float[Array, "env"]:
    """Centred ranks in [-1/2, 1/2] among the members that count; of equals the mean."""
    known = jnp.where(counts, returns, jnp.inf)
    order = jnp.sort(known)
    below = jnp.searchsorted(order, known, side="left")
    up_to = jnp.searchsorted(order, known, side="right")
    rank = 0.5 * (below + up_to - 1).astype(jnp.float32)
    return rank / (number(counts, 2) - 1.0) - 0.5


def number(counts: Bool[Array, "env"], least: int) -> Float[Array, ""]:
    """How many there are, for a divisor."""
    return jnp.maximum(counts.sum().astype(jnp.float32), least)
