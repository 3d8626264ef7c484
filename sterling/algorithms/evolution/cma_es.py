"""Covariance matrix adaptation (CMA-ES; Hansen 2016, arXiv:1604.00772), of a policy's weights.

    members      x_k = m + sigma y_k,   y_k = C^1/2 z_k,   z_k ~ N(0, I)
    mean         m   <- m + sigma y_w,  y_w = sum of w_i y_i over the better half
    path         p_s <- (1 - c_s) p_s + sqrt(c_s (2 - c_s) mu_eff) C^-1/2 y_w
    step size    sigma <- sigma exp(c_s / d_s (|p_s| / E|N(0, I)| - 1))
    path         p_c <- (1 - c_c) p_c + h sqrt(c_c (2 - c_c) mu_eff) y_w
    covariance   C   <- (1 + c_1 (1 - h) c_c (2 - c_c) - c_1 - c_mu sum w) C
                        + c_1 p_c p_c^T + c_mu sum of w_i' y_i y_i^T
    negative     w_i' = w_i n / |z_i|^2  where w_i < 0, else w_i

Every env is a member that plays one whole episode; points are ranked by its return, the best first.
h is 0 where |p_s| is so long that the step size is about to rise, else 1. C^1/2 is the symmetric
root, computed anew every 1 / (10 n (c_1 + c_mu)) generations. (The tutorial's B D, of eigenvectors
and axes, draws from the same distribution, but turns with the rounding of C where axes are nearly
equal.) A member is computed from its key when needed, so none is stored. The policy is m.

With more than ``full_weights`` weights, C is diagonal (sep-CMA-ES; Ros & Hansen 2008): a full one
of n weights holds n^2 numbers, and its eigenvectors take n^3 operations. Weights and rates are in
equations/covariance_adaptation.py.

Deviations: members whose environment returned NaN do not count, and the rates are those of the
members that do; there are no restarts and no bounds; observations may be normalised by the moments
of all observations, which change what the weights mean as they move. Equal returns are ranked by
the member's number, which is chance. The population is the number of envs, at least 4; the
tutorial's is 4 + 3 log n, for returns without noise.

The budget counts ``limit`` steps per env and iteration, however long episodes are; the metric
``population/steps`` is the number of steps really taken.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.evolution import openes
from sterling.algorithms.evolution.openes import Nets
from sterling.equations import covariance_adaptation
from sterling.equations.covariance_adaptation import Rates
from sterling.field_types import Activation, Count, Depth, Positive, Sizes, Whole
from sterling.needs.feed import EPISODES
from sterling.nets.optimiser import global_norm
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config

SMALLEST = 1e-14  # of C's eigenvalues


@config
class Config:
    """Rates are the tutorial's; ``width`` is small, because C holds the square of the weights."""

    noise_initial: Positive = 0.3  # initial sigma: standard deviation of the members' weights
    full_weights: Whole = 2000  # weights up to which C is a full matrix; beyond it is diagonal
    limit: Count = 1000  # steps after which an episode is stopped and counted
    normalise_obs: bool = False  # normalise observations by their running mean and std
    width: Sizes = 16  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers


class Search(eqx.Module):
    """The distribution that members are drawn from, around the policy's n weights."""

    sigma: Float[Array, ""]
    path_sigma: Float[Array, "n"]  # p_s
    path_c: Float[Array, "n"]  # p_c
    covariance: Float[Array, "..."]  # C: (n, n), or its diagonal (n,)
    root: Float[Array, "n n"] | None  # C^1/2; None where C is diagonal
    scales: Float[Array, "n"]  # lengths of the axes: the square roots of C's eigenvalues

    @classmethod
    def create(cls, size: int, sigma: Float[Array, ""] | float, *, is_full: bool) -> Search:
        """Return the same standard deviation in all directions."""
        zero, one = jnp.zeros(size), jnp.ones(size)
        whole = jnp.eye(size)
        form = (whole, jnp.copy(whole), one) if is_full else (one, None, jnp.copy(one))
        return cls(jnp.asarray(sigma, jnp.float32), zero, jnp.copy(zero), *form)

    def stretched(self, z: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """Return y = C^1/2 z."""
        if self.root is not None:
            return z @ self.root
        return z * self.scales.reshape((1,) * (z.ndim - 1) + (-1,))

    def rates(self, points: int, count: Int[Array, ""]) -> Rates:
        """Return weights and rates, if ``count`` of the points count."""
        is_full = self.root is not None
        form = covariance_adaptation.full_rates if is_full else covariance_adaptation.diagonal_rates
        return form(points, count, self.scales.size)


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets  # m
    search: Search
    obs_statistics: ObsNormaliser
    generation: Int[Array, ""]  # how many there were
    config: Config


def needs(config: Config) -> Needs:
    """Ask for one whole episode of every env."""
    return Needs(config.limit, (Feed(EPISODES),))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for fewer than 4 envs."""
    if spec.envs < 4:
        raise Mistake(f"cma-es needs at least 4 envs (each is a member), not {spec.envs}.")
    nets = openes.create_nets(key, spec, config)
    size = ravel_pytree(nets)[0].size
    search = Search.create(size, config.noise_initial, is_full=size <= config.full_weights)
    moments = ObsNormaliser.create(spec.obs, config.normalise_obs)
    return State(nets, search, moments, jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the policy's mode; the population's weights explore."""
    return openes.act(state, obs, key, explore)


def member(state: State, key: Key[Array, ""], env: Int[Array, ""]) -> State:
    """Return the state that acts in one env: the policy x_k."""
    mean, as_nets = ravel_pytree(state.nets)
    y = state.search.stretched(draw_direction(key, env, mean.size))
    return dataclasses.replace(state, nets=as_nets(mean + state.search.sigma * y))


def draw_direction(key: Key[Array, ""], env: Int[Array, ""], size: int) -> Float[Array, "n"]:
    """Return z of one member."""
    return jax.random.normal(random_keys.fold(key, "direction", env), (size,))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Move the distribution towards the members with the highest returns. ``key`` is not used."""
    mean, as_nets = ravel_pytree(state.nets)
    points, generation = len(batch.mask), state.generation + 1
    envs = jnp.arange(points, dtype=jnp.int32)
    z = jax.vmap(lambda env: draw_direction(batch.start.key, env, mean.size))(envs)
    count = batch.mask.sum(dtype=jnp.int32)
    best_first = jnp.argsort(jnp.where(batch.mask, -batch.reward, jnp.inf), stable=True)
    shift, adapted = adapt_search(state.search, z[best_first], count, generation)
    learned = (as_nets(mean + shift), adapted)
    nets, search = jax.tree.map(  # of fewer than two members none is better than others
        lambda new, old: jnp.where(count >= 2, new, old), learned, (state.nets, state.search)
    )
    moments = state.obs_statistics.joined(batch.start.seen, batch.mask)
    best = jnp.max(batch.reward, where=batch.mask, initial=-math.inf)
    steps_taken = batch.extras["episode/length"].sum(where=batch.mask)
    metrics = {
        "population/best": jnp.where(batch.mask.any(), best, 0.0),
        "population/steps": steps_taken.astype(jnp.float32),
        "population/sigma": search.sigma,
        "population/longest_axis": search.scales.max(),
        "population/shortest_axis": search.scales.min(),
        "policy/norm": global_norm(nets),
    }
    return State(nets, search, moments, generation, state.config), Signals(metrics)


def adapt_search(
    search: Search, z: Float[Array, "points n"], count: Int[Array, ""], generation: Int[Array, ""]
) -> tuple[Float[Array, "n"], Search]:
    """Return by how much m moves, and the next distribution. ``z`` are the points from the best to
    the worst; the first ``count`` of them count. ``generation`` begins at 1."""
    size, rates = z.shape[1], search.rates(len(z), count)
    z_w = rates.parents @ z
    y, y_w = search.stretched(z), search.stretched(z_w)
    c_s, c_c = rates.c_sigma, rates.c_path
    kick = jnp.sqrt(c_s * (2.0 - c_s) * rates.effective)
    path_sigma = (1.0 - c_s) * search.path_sigma + kick * z_w
    expected, norm = covariance_adaptation.expected_norm(size), jnp.linalg.norm(path_sigma)
    age = generation.astype(jnp.float32)
    warm = jnp.sqrt(1.0 - (1.0 - c_s) ** (2.0 * (age + 1.0)))
    h = jnp.where(norm / warm < (1.4 + 2.0 / (size + 1.0)) * expected, 1.0, 0.0)
    kick = h * jnp.sqrt(c_c * (2.0 - c_c) * rates.effective)
    path_c = (1.0 - c_c) * search.path_c + kick * y_w
    far = size / jnp.maximum(jnp.square(z).sum(1), 1e-8)
    weights = jnp.where(rates.weights < 0.0, rates.weights * far, rates.weights)
    kept = 1.0 + rates.c_one * (1.0 - h) * c_c * (2.0 - c_c) - rates.c_one
    kept = kept - rates.c_mu * rates.weights.sum()
    is_full = search.root is not None
    one = jnp.outer(path_c, path_c) if is_full else jnp.square(path_c)
    mu = (y.T * weights[None]) @ y if is_full else weights @ jnp.square(y)
    adapted = dataclasses.replace(
        search,
        sigma=search.sigma * jnp.exp(c_s / rates.damping * (norm / expected - 1.0)),
        path_sigma=path_sigma,
        path_c=path_c,
        covariance=kept * search.covariance + rates.c_one * one + rates.c_mu * mu,
    )
    every = jnp.floor(0.1 / (size * (rates.c_one + rates.c_mu)))
    is_due = jnp.mod(age, jnp.maximum(every, 1.0)) == 0.0
    return search.sigma * y_w, jax.lax.cond(is_due, decompose, lambda same: same, adapted)


def decompose(search: Search) -> Search:
    """Return the distribution with the root and the axes of its C."""
    if search.root is None:
        scales = jnp.sqrt(jnp.maximum(search.covariance, SMALLEST))
        return dataclasses.replace(search, scales=scales)
    values, basis = eigenvectors(0.5 * (search.covariance + search.covariance.T))
    scales = jnp.sqrt(jnp.maximum(values, SMALLEST))
    return dataclasses.replace(search, root=(basis * scales[None]) @ basis.T, scales=scales)


@jax.custom_batching.sequential_vmap
def eigenvectors(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n"], Float[Array, "n n"]]:
    """Return the eigenvalues and eigenvectors of a symmetric matrix; under ``vmap`` of one matrix
    after another, because batches of decompositions may wait for each other (nets/mlp.py)."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors
