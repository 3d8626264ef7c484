"""Decision transformer (Chen 2021, arXiv:2106.01345), for all supported action spaces.

    tokens    (R_t, s_t, a_t) for the last K steps of an episode, R_t the return from t to its end
    model     h_t = the causal transformer's output at s_t, given R_t, s_t and all earlier tokens
    Box       L = E[ |tanh(W h_t) - a_t|^2 ]                 (a mean over the numbers of an action)
    Discrete  L = -E[ log softmax(W h_t)_{a_t} ]

It acts by asking for a return: R_0 is ``target``, and each reward is subtracted from it. No value
is learned or bootstrapped; the dataset's behaviour with the wanted return is imitated. Returns are
undiscounted and in units of the dataset's largest; the tokens of every step carry an embedding of
its index in the episode.

Deviations from the authors' code: no dropout; GELU for ReLU; initial projections are smaller in
deeper stacks; a sequence ends at the drawn row (there it begins at it), so an episode's last K-1
steps are learned from less often than the others (there the first). As there, only actions are
predicted. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Count, Finite, Layers, Limit, NotNegative, Whole
from sterling.nets.action_heads import OFFLINE, Actions, supported_actions
from sterling.nets.mlp import MLP, Norm
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend, global_norm, warmup_lr
from sterling.nets.running_statistics import ObsNormaliser
from sterling.nets.transformer import Transformer
from sterling.types import Action, Log, Mistake, Obs, Record, Sequences, Signals, Spec, config


@config
class Config:
    """Defaults are those of the authors' code for D4RL's MuJoCo tasks (the paper's table 9)."""

    lr: NotNegative = 1e-4  # Adam's step size after the rise
    rise: Whole = 10_000  # updates over which the step size rises linearly from 0
    weight_decay: NotNegative = 1e-4  # AdamW's weight decay
    max_grad_norm: Limit = 0.25  # gradients are clipped to this global norm
    target: Finite | None = None  # target return; None: the dataset's largest
    horizon: Count | None = None  # number of step embeddings; None: the dataset's longest episode
    length: Count = 20  # K: context length in steps
    normalise_obs: bool = True  # normalise observations by the dataset's mean and deviation
    batch: Count = 64  # sequences of K steps per update
    learn: Count = 1  # updates per iteration
    width: Count = 128  # size of each token's embedding
    layers: Layers = 3  # transformer layers
    heads: Count = 1  # attention heads; must divide width


class Context(eqx.Module):
    """The steps that the model sees, oldest first."""

    wanted: Float[Array, "batch time"]  # scaled return from here to the end
    features: Float[Array, "batch time features"]
    action: Float[Array, "batch time n"]  # choices one-hot
    time: Int[Array, "batch time"]
    mask: Bool[Array, "batch time"]


class Nets(eqx.Module):
    """The learned networks."""

    torso: Encoder
    of_return: MLP
    of_obs: MLP
    of_action: MLP
    of_time: Float[Array, "horizon width"]
    norm: Norm
    stack: Transformer
    head: MLP

    def __call__(self, context: Context) -> Float[Array, "batch time outputs"]:
        """Return W h_t for every step."""
        batch, time, _ = context.features.shape
        obs_tokens, action_tokens = self.of_obs(context.features), self.of_action(context.action)
        parts = (self.of_return(context.wanted[..., None]), obs_tokens, action_tokens)
        time_embedding = self.of_time[jnp.clip(context.time, 0, self.of_time.shape[0] - 1)]
        tokens = jnp.stack([part + time_embedding for part in parts], 2).reshape(
            batch, 3 * time, -1
        )
        valid = jnp.repeat(context.mask, 3, 1)
        obs_tokens = self.stack(self.norm(tokens), valid, in_blocks=False)
        return self.head(obs_tokens.reshape(batch, time, 3, -1)[:, :, 1])


class Memory(eqx.Module):
    """Every env's context without the last step's action, which is not known yet, that step's
    wanted return and its index in the episode."""

    context: Context
    wanted: Float[Array, "env"]
    time: Int[Array, "env"]


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.OptState
    normaliser: ObsNormaliser
    scale: Float[Array, ""]  # of returns
    target: Float[Array, ""]  # scaled
    updates: Int[Array, ""]
    config: Config
    actions: Actions = eqx.field(static=True)


def needs(config: Config) -> Sequences:
    """Ask for sequences of K steps, with undiscounted returns to the end of their episodes."""
    return Sequences(config.batch, config.length, config.learn, gamma=1.0)


def complete_config(config: Config, log: Log) -> Config:
    """Return the Config with ``target`` and ``horizon`` from the dataset, if they are not given."""
    target = log.returns[1] if config.target is None else config.target
    horizon = log.longest if config.horizon is None else config.horizon
    fields: Any = config  # its decorator makes it a dataclass, which type checkers cannot see
    return dataclasses.replace(fields, target=target, horizon=horizon)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if there is no dataset, and ``target`` and
    ``horizon`` are not given either."""
    config = config if spec.log is None else complete_config(config, spec.log)
    if config.target is None or config.horizon is None:
        raise Mistake("dt needs a dataset: pass data=FILE, or both target= and horizon=.")
    scale = 1.0 if spec.log is None else max(1e-6, *(abs(bound) for bound in spec.log.returns))
    actions, torso = (
        supported_actions("dt", spec.action, ("box", "discrete", "multi"), OFFLINE),
        Encoder.create(random_keys.fold(key, "torso"), spec),
    )
    width, stack = config.width, random_keys.fold(key, "stack")
    nets = Nets(
        torso,
        MLP.uniform(random_keys.fold(key, "return"), (1, width)),
        MLP.uniform(random_keys.fold(key, "obs"), (torso.size, width)),
        MLP.uniform(random_keys.fold(key, "action"), (actions.outputs, width)),
        jax.random.normal(random_keys.fold(key, "time"), (config.horizon, width)),
        Norm(jnp.ones(width), jnp.zeros(width)),
        Transformer.create(stack, width, layers=config.layers, heads=config.heads),
        MLP.uniform(random_keys.fold(key, "head"), (width, actions.outputs)),
    )
    return State(
        nets,
        adam().init(nets),
        ObsNormaliser.of_log(spec, config.normalise_obs),
        jnp.asarray(scale, jnp.float32),
        jnp.asarray(config.target / scale, jnp.float32),
        jnp.zeros((), jnp.int32),
        config,
        actions,
    )


def memory(state: State, envs: int, key: Key[Array, ""]) -> Memory:
    """Return the memory at the start of an episode, for each of ``envs`` environments."""
    shape = (envs, state.config.length)
    context = Context(
        jnp.zeros(shape),
        jnp.zeros((*shape, state.nets.torso.size)),
        jnp.zeros((*shape, state.actions.outputs)),
        jnp.zeros(shape, jnp.int32),
        jnp.zeros(shape, bool),
    )
    return Memory(context, jnp.full(envs, state.target), jnp.zeros(envs, jnp.int32))


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Memory, dict[str, Array]]:
    """Return actions for ``(env, ...)`` observations, and the memory with the new step. Discrete
    actions are sampled with ``explore``, otherwise the most likely; Box actions are deterministic.
    """
    obs, memory, past_action = state.normaliser(obs), past.memory, state.actions.encode(past.action)
    wanted = memory.wanted - past.reward / state.scale
    time = jnp.where(past.first, memory.time, memory.time + 1)
    actions = memory.context.action.at[:, -1].set(past_action)
    context = eqx.tree_at(lambda c: c.action, memory.context, actions)
    parts = (
        wanted,
        state.nets.torso(obs),
        jnp.zeros_like(past_action),
        time,
        jnp.ones_like(past.first),
    )
    new_step = Context(*(part[:, None] for part in parts))
    context = jax.tree.map(
        lambda old, new: jnp.concatenate([old[:, 1:], new], 1), context, new_step
    )
    outputs = state.nets(context)[:, -1]
    if state.actions.kind == "box":
        action: Any = jnp.tanh(outputs)
    else:
        pi = state.actions.distribution(outputs, action_mask(obs, state.actions.sizes))
        action = pi.sample(key) if explore else pi.mode()
    return state.actions.shaped(action), Memory(context, wanted, time), {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on sequences ``(batch, time, ...)``."""
    config = state.config
    grads, total = jax.grad(loss, has_aux=True)(state.nets, state, batch)
    direction, optimiser = adam(max_norm=config.max_grad_norm).update(grads, state.optimiser)
    rate = warmup_lr(config.lr, state.updates, config.rise)
    direction = jax.tree.map(lambda d, p: d + config.weight_decay * p, direction, state.nets)
    nets = descend(state.nets, direction, rate)
    learned = eqx.tree_at(
        lambda s: (s.nets, s.optimiser, s.updates), state, (nets, optimiser, state.updates + 1)
    )
    return learned, Signals({"loss/policy": total, "loss/grad_norm": global_norm(grads)})


def loss(nets: Nets, state: State, batch: Record) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return L of the module docstring twice: as the loss and as a metric."""
    obs, actions = state.normaliser(batch.obs), state.actions
    wanted = batch.extras["monte_carlo"] / state.scale
    logged = actions.encode(batch.action)
    outputs = nets(Context(wanted, nets.torso(obs), logged, batch.extras["time"], batch.mask))
    if actions.kind == "box":
        each = jnp.mean(jnp.square(jnp.tanh(outputs) - logged), -1)
    else:
        each = -actions.distribution(outputs, action_mask(obs, actions.sizes)).log_prob(
            batch.action
        )
    total = masked_mean(each, batch.mask)
    return total, total
