"""Evolution strategies (Salimans 2017, arXiv:1703.03864), as in OpenAI's code.

    members     theta_2j = theta + sigma e_j,  theta_2j+1 = theta - sigma e_j      e_j ~ N(0, I)
    fitness     F_i = return of one whole episode of member i
    shaping     u_i = (rank of F_i) / (n - 1) - 1/2,  equal returns have the mean of their ranks
    ascent      g = 1/n sum_j (u_2j - u_2j+1) e_j
    update      theta <- theta - alpha Adam(-g + lambda theta)                     (weight decay)

Every env is a member: with n envs there are n / 2 pairs. A member's perturbation is recomputed from
its key when needed, so none is stored. As in the authors' code, and unlike equation 1, g is not
divided by sigma: Adam is invariant to scale, and the weight decay is relative to ranks.
Deviations: equal returns share their ranks, so a pair with equal returns changes nothing (in the
code the sorting order would prefer one side); a pair does not count if a member's environment
returned NaN; observations are normalised by the moments of all observations, not of one in a
hundred; actions have no noise. There are no policy gradients, values and discounts.

The budget counts ``limit`` steps per env and iteration, however long episodes are; the metric
``population/steps`` is the number of steps really taken. Evidence: benchmarks/results/openes.md.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.field_types import Activation, Count, Depth, NotNegative, Sizes
from sterling.needs.feed import EPISODES
from sterling.nets.action_heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are those of the authors' code for MuJoCo, except ``limit`` and ``width``."""

    lr: NotNegative = 0.01  # alpha: Adam's step size
    noise: NotNegative = 0.02  # sigma: standard deviation of the members' parameters
    weight_decay: NotNegative = 0.005  # lambda of the weight decay
    limit: Count = 1000  # steps after which an episode is stopped and counted
    normalise_obs: bool = True  # normalise observations by their running mean and std
    width: Sizes = 64  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers


class Nets(eqx.Module):
    """The policy; ``torso`` encodes images and has no parameters for vectors."""

    torso: Encoder
    policy: MLP
    actions: Actions = eqx.field(static=True)


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets  # theta
    optimiser: optax.OptState
    obs_statistics: ObsNormaliser
    config: Config


def needs(config: Config) -> Needs:
    """Ask for one whole episode of every env."""
    return Needs(config.limit, (Feed(EPISODES),))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent."""
    if spec.envs % 2:
        raise Mistake(f"openes needs an even number of envs (members are pairs), not {spec.envs}.")
    nets = create_nets(key, spec, config)
    moments = ObsNormaliser.create(spec.obs, config.normalise_obs)
    return State(nets, adam().init(nets), moments, config)


def create_nets(key: Key[Array, ""], spec: Spec, config: Any) -> Nets:
    """Return a new policy, of a config that has this one's fields of networks."""
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    actions = Actions.from_space(spec.action)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth))
    activation = torso.hidden_activation(config.activation)
    policy = MLP.orthogonal(
        *(random_keys.fold(key, "policy"), (*sizes, actions.outputs), activation, 0.01),
        layer_norm=config.layer_norm,
    )
    return Nets(torso, policy, actions)


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the policy's mode; the population's perturbations explore."""
    nets = state.nets
    outputs = nets.policy(nets.torso(state.obs_statistics(obs)))
    pi = nets.actions.distribution(outputs, action_mask(obs, nets.actions.sizes))
    return nets.actions.shaped(pi.mode()), {}


def member(state: State, key: Key[Array, ""], env: Int[Array, ""]) -> State:
    """Return the state that acts in one env: theta + sigma e in even envs, else theta - sigma e."""
    side = state.config.noise * (1 - 2 * (env % 2)).astype(jnp.float32)
    step = draw_perturbation(key, env // 2, state.nets)
    moved = jax.tree.map(lambda x, e: x + side * e, state.nets, step)
    return eqx.tree_at(lambda state: state.nets, state, moved)


def draw_perturbation(key: Key[Array, ""], pair: Int[Array, ""], like: Nets) -> Nets:
    """Return e of one pair: standard normal numbers with the structure of the parameters."""
    leaves, form = jax.tree.flatten(like)
    noise = jax.random.normal(
        random_keys.fold(key, "direction", pair), (sum(x.size for x in leaves),)
    )
    parts, start = [], 0
    for leaf in leaves:
        parts.append(noise[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(form, parts)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one Adam step along the estimated ascent direction g."""
    config, theta = state.config, state.nets
    pairs = batch.mask.reshape(-1, 2).all(1)  # in which both members are valid
    valid = jnp.repeat(pairs, 2)
    u = centred_ranks(batch.reward, valid).reshape(-1, 2)
    weight = jnp.where(pairs, u[:, 0] - u[:, 1], 0.0) / count_at_least(valid, 1)

    def add_pair(total: Nets, each: tuple[Array, Array]) -> tuple[Nets, None]:
        pair, share = each
        step = draw_perturbation(batch.start.key, pair, theta)
        return jax.tree.map(lambda sum_, e: sum_ + share * e, total, step), None

    pair_weights = (jnp.arange(len(pairs), dtype=jnp.int32), weight)
    ascent, _ = jax.lax.scan(add_pair, jax.tree.map(jnp.zeros_like, theta), pair_weights)
    down = jax.tree.map(lambda g, x: config.weight_decay * x - g, ascent, theta)
    step, optimiser = adam().update(down, state.optimiser)
    moments = state.obs_statistics.joined(batch.start.seen, batch.mask)
    best = jnp.max(batch.reward, where=batch.mask, initial=-math.inf)
    steps_taken = batch.extras["episode/length"].sum(where=batch.mask)
    metrics = {
        "population/best": jnp.where(batch.mask.any(), best, 0.0),
        "population/steps": steps_taken.astype(jnp.float32),
        "loss/grad_norm": global_norm(ascent),
        "policy/norm": global_norm(theta),
    }
    return State(descend(theta, step, config.lr), optimiser, moments, config), Signals(metrics)


def centred_ranks(returns: Float[Array, "env"], counts: Bool[Array, "env"]) -> Float[Array, "env"]:
    """Return centred ranks in [-1/2, 1/2] among members that count; equal returns share them."""
    known = jnp.where(counts, returns, jnp.inf)
    order = jnp.sort(known)
    below = jnp.searchsorted(order, known, side="left")
    up_to = jnp.searchsorted(order, known, side="right")
    rank = 0.5 * (below + up_to - 1).astype(jnp.float32)
    return rank / (count_at_least(counts, 2) - 1.0) - 0.5


def count_at_least(counts: Bool[Array, "env"], least: int) -> Float[Array, ""]:
    """Return how many members count, at least ``least`` (it is used as a divisor)."""
    return jnp.maximum(counts.sum().astype(jnp.float32), least)
