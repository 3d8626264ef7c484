"""Phasic policy gradient (PPG; Cobbe 2020, arXiv:2009.04416).

    policy phase      in every iteration, PPO's losses (ppo.py):  L_pi + c_V L_V - c_H E[H]
    auxiliary phase   after every N iterations, on the observations of all of them:
        L_joint = L_aux + b E[ KL(pi_old(.|s) || pi(.|s)) ] + L_V
        L_aux   = 1/2 E[ (V_aux(s) - y)^2 ],     L_V = 1/2 E[ (V(s) - y)^2 ],     y = A + V_old(s)

V_aux is a linear layer on the last hidden layer of the policy's network: what helps to predict
values is learned there too, while pi stays near pi_old, the policy at the phase's beginning. y are
the targets of V in the policy phase. Each phase has an Adam of its own.

Deviations from the paper: those of ppo.py, but without an annealed step size and without gradient
clipping; policy and value have separate networks for vectors, but one torso for images, which in
the policy phase only the policy's loss moves (the paper's variant with one network, section 3.5).
The observations of N iterations are part of the agent's state: ``policy_iterations`` x envs x
``length`` of them take memory in it and in checkpoints. Normalised rewards are those of their
iteration.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium.vector.utils import create_empty_array
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.equations.masked_average import masked_mean
from sterling.equations.minibatches import check_minibatch
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share, Sizes
from sterling.needs.feed import FRESH
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import action_mask
from sterling.nets.optimiser import adam
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are those of the paper for Procgen (appendix A), except ``minibatch``: a rollout of
    its 64 envs has 8 of them."""

    lr: NotNegative = 5e-4  # Adam's initial step size, in both phases
    gamma: Share = 0.999  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    clip: Limit = 0.2  # largest change of the probability ratio
    entropy_coef: NotNegative = 0.01  # c_H: weight of the entropy
    value_coef: NotNegative = 1.0  # c_V: weight of the value loss in the policy phase
    clone_coef: NotNegative = 1.0  # b: weight of the KL from the policy at the phase's beginning
    max_grad_norm: Limit = float("inf")  # gradients are clipped to this global norm
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 256  # rows per update; an epoch's last update may have fewer
    epochs: Count = 1  # passes over a rollout
    policy_iterations: Count = 32  # N: iterations from one auxiliary phase to the next
    auxiliary_minibatch: Count = 1024  # rows per update of the auxiliary phase
    auxiliary_epochs: Count = 6  # passes over the rows of N iterations
    anneal: bool = False  # step size falls linearly to 0 over the run
    clip_value: bool = False  # also clip the change of V in the policy phase
    normalise_advantage: bool = True  # standardise advantages per minibatch
    normalise_obs: bool = False  # normalise observations by their running mean and std
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    width: Sizes = 64  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers of policy and value
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class Nets(ppo.ActorCritic):
    """Policy, value, and V_aux on the policy's last hidden layer."""

    auxiliary: MLP


class SeenRows(eqx.Module):
    """The rows of an iteration, or of N ``(iteration, row, ...)``: observations as the environment
    gave them, and the targets y."""

    obs: Obs
    target: Float[Array, "... row"]
    mask: Bool[Array, "... row"]


class State(ppo.State):
    """Everything that changes during training."""

    nets: Nets
    auxiliary_optimiser: optax.OptState
    seen: SeenRows


def needs(config: Config) -> Needs:
    """Ask for fresh rollouts of ``length`` steps of each env; every N-th also for ``auxiliary``."""
    count = config.policy_iterations
    auxiliary = Feed(FRESH, name="auxiliary", every=count, after=count - 1)
    return Needs(config.length, (Feed(FRESH), auxiliary))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent: ppo's, V_aux, and room for the rows of N iterations."""
    fields: Any = ppo.Config
    names = {each.name for each in dataclasses.fields(fields)} & set(vars(config))
    created = ppo.init(key, spec, ppo.Config(**{name: getattr(config, name) for name in names}))
    shape = config.policy_iterations, config.length * spec.envs
    check_minibatch(config.auxiliary_minibatch, shape[0] * shape[1])
    inputs = created.nets.policy.layers[-1].weight.shape[0]
    auxiliary = MLP.orthogonal(random_keys.fold(key, "auxiliary"), (inputs, 1))
    nets = Nets(**vars(created.nets), auxiliary=auxiliary)

    def room(leaf: np.ndarray) -> Array:
        return jnp.zeros((*shape, *leaf.shape[1:]), jax.dtypes.canonicalize_dtype(leaf.dtype))

    obs = jax.tree.map(room, create_empty_array(spec.obs, 1))
    changed = {"nets": nets, "optimiser": adam().init(nets), "config": config}
    return State(
        **(vars(created) | changed),
        auxiliary_optimiser=adam().init(nets),
        seen=SeenRows(obs, jnp.zeros(shape), jnp.zeros(shape, bool)),
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return ppo.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return ppo.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return ppo.value(state, obs)


def advantage(state: State, batch: Record) -> Float[Array, "time env"]:
    """Return A_t of a rollout's rows, without learning from them."""
    return ppo.advantage(state, batch)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make the policy phase's updates on one rollout ``(time, env, ...)``, and keep its rows."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = ppo.rollout_rows(state, batch, rewards.scale(batch.reward))
    nets, optimiser, metrics = ppo.run_epochs(state, rows, key, loss)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch.obs)
    target = jnp.where(rows["mask"], rows["advantage"] + rows["value"], 0.0)
    new = SeenRows(flat, target, rows["mask"])
    place = state.iteration.astype(jnp.int32) % config.policy_iterations
    learned = dataclasses.replace(
        state,
        nets=nets,
        optimiser=optimiser,
        obs_statistics=state.obs_statistics.update(batch.obs, batch.mask),
        reward_statistics=rewards,
        iteration=state.iteration + 1.0,
        seen=jax.tree.map(
            lambda all_, x: all_.at[place].set(x.astype(all_.dtype)), state.seen, new
        ),
    )
    return learned, Signals(metrics, {"advantage": rows["advantage"].reshape(batch.mask.shape)})


def learn_auxiliary(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make the auxiliary phase's updates on the rows of N iterations. ``batch`` is not used."""
    config, nets = state.config, state.nets
    seen = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), state.seen)
    obs, allowed = state.obs_statistics(seen.obs), action_mask(seen.obs, nets.actions.sizes)
    old = nets.distribution(nets.torso(obs), allowed)
    rows = {"obs": obs, "allowed": allowed, "old": old, "target": seen.target, "mask": seen.mask}
    own = dataclasses.replace(state, optimiser=state.auxiliary_optimiser)
    sizes = config.auxiliary_minibatch, config.auxiliary_epochs
    nets, optimiser, metrics = ppo.run_epochs(own, rows, key, auxiliary_loss, sizes)
    return dataclasses.replace(state, nets=nets, auxiliary_optimiser=optimiser), Signals(metrics)


def loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return the policy phase's loss on a minibatch of rows, and metrics."""
    features = nets.torso(rows["obs"])
    pi = nets.distribution(features, rows["allowed"])
    return ppo.objective(pi, nets.value(jax.lax.stop_gradient(features))[..., 0], rows, config)


def auxiliary_loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L_joint of the module docstring on a minibatch of rows, and metrics."""
    features, mask = nets.torso(rows["obs"]), rows["mask"]
    pi = nets.distribution(features, rows["allowed"])
    auxiliary = nets.auxiliary(nets.policy.hidden(features))[..., 0]
    kl = masked_mean(rows["old"].kl(pi), mask)
    errors = [
        0.5 * jnp.square(x - rows["target"]) for x in (auxiliary, nets.value(features)[..., 0])
    ]
    auxiliary_error, value_error = (masked_mean(error, mask) for error in errors)
    metrics = {"loss/auxiliary": auxiliary_error, "loss/value": value_error, "policy/kl": kl}
    return auxiliary_error + config.clone_coef * kl + value_error, metrics
