"""Decision transformer (Chen 2021, arXiv:2106.01345), for any actions that a policy covers.

    tokens    (R_t, s_t, a_t) for the last K steps of an episode, R_t the return from t to its end
    model     h_t = the causal transformer's output at s_t: of R_t, s_t and all that was before
    boxes     L = E[ |tanh(W h_t) - a_t|^2 ]                 (a mean over the numbers of an action)
    choices   L = -E[ log softmax(W h_t)_{a_t} ]

To act, ask for a return: R_0 is ``target``, and each reward is taken off it. No value is learned,
nothing is bootstrapped, and the log's policy is imitated as far as it earned what is asked for.
Returns are undiscounted and in units of the log's largest; every step's tokens carry an embedding
of its number within the episode.

Deviations from the authors' code: no dropout; GELU for ReLU; projections start smaller in deeper
stacks; stretches end in the row that was drawn, there they begin in it, so that here an episode's
last K-1 steps are learned from less often than others, there its first. As there, only actions are
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

from sterling import keys
from sterling.actor import Past
from sterling.equations.average import masked_mean
from sterling.field_types import Count, Finite, Layers, Limit, NotNegative, Whole
from sterling.nets.encoder import Encoder, action_mask
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP, Norm
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend, global_norm, risen
from sterling.nets.transformer import Transformer
from sterling.types import Action, Log, Mistake, Obs, Record, Sequences, Signals, Spec, config


@config
class Config:
    """Defaults are those of the authors' code for D4RL's MuJoCo worlds (the paper's table 9)."""

    lr: NotNegative = 1e-4  # Adam's step size, once risen
    rise: Whole = 10_000  # updates over which the step size rises linearly from 0
    weight_decay: NotNegative = 1e-4  # share of weights taken off per update, times the step size
    max_grad_norm: Limit = 0.25  # global norm that gradients are clipped to
    target: Finite | None = None  # return to ask for, in the world's units; None: the log's largest
    horizon: Count | None = None  # steps of an episode told apart; None: the log's longest episode
    length: Count = 20  # K: steps that the model sees
    normalise_obs: bool = True  # centre and scale observations by the log's moments
    batch: Count = 64  # stretches of K steps per update
    learn: Count = 1  # updates per iteration
    width: Count = 128  # numbers per token
    layers: Layers = 3  # of attention and perceptron
    heads: Count = 1  # of attention; they share the width


class Context(eqx.Module):
    """Steps that the model sees, oldest first."""

    wanted: Float[Array, "batch time"]  # scaled return from here to the end
    features: Float[Array, "batch time features"]
    action: Float[Array, "batch time n"]  # choices one-hot
    time: Int[Array, "batch time"]
    mask: Bool[Array, "batch time"]


class Nets(eqx.Module):
    """What is learned."""

    torso: Encoder
    of_return: MLP
    of_obs: MLP
    of_action: MLP
    of_time: Float[Array, "horizon width"]
    norm: Norm
    stack: Transformer
    head: MLP

    def __call__(self, context: Context) -> Float[Array, "batch time outputs"]:
        """W h_t for every step."""
        batch, time, _ = context.features.shape
        seen, acted = self.of_obs(context.features), self.of_action(context.action)
        parts = (self.of_return(context.wanted[..., None]), seen, acted)
        place = self.of_time[jnp.clip(context.time, 0, self.of_time.shape[0] - 1)]
        tokens = jnp.stack([part + place for part in parts], 2).reshape(batch, 3 * time, -1)
        seen = self.stack(self.norm(tokens), jnp.repeat(context.mask, 3, 1))
        return self.head(seen.reshape(batch, time, 3, -1)[:, :, 1])


class Memory(eqx.Module):
    """The context of every env, but for what was done in its last step, and that step's place."""

    context: Context
    wanted: Float[Array, "env"]
    time: Int[Array, "env"]


class State(eqx.Module):
    """Everything that changes."""

    nets: Nets
    optimiser: optax.OptState
    normaliser: ObsNormaliser
    scale: Float[Array, ""]  # of returns
    target: Float[Array, ""]  # scaled
    updates: Int[Array, ""]
    config: Config
    actions: Actions = eqx.field(static=True)


def needs(config: Config) -> Sequences:
    """Stretches of K steps, with undiscounted returns to the end of their episodes."""
    return Sequences(config.batch, config.length, config.learn, gamma=1.0)


def settled(config: Config, log: Log) -> Config:
    """The fields with what they leave to the log."""
    target = log.returns[1] if config.target is None else config.target
    horizon = log.longest if config.horizon is None else config.horizon
    fields: Any = config  # a dataclass by its decorator, which type checkers do not see
    return dataclasses.replace(fields, target=target, horizon=horizon)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` without a log to learn from where ``target`` and
    ``horizon`` do not say what the log would."""
    config = config if spec.log is None else settled(config, spec.log)
    if config.target is None or config.horizon is None:
        raise Mistake("dt learns from logged experience; give data=..., or target= and horizon=")
    scale = 1.0 if spec.log is None else max(1e-6, *(abs(bound) for bound in spec.log.returns))
    actions, torso = Actions.of(spec.action), Encoder.create(keys.fold(key, "torso"), spec.obs)
    width, stack = config.width, keys.fold(key, "stack")
    nets = Nets(
        torso,
        MLP.uniform(keys.fold(key, "return"), (1, width)),
        MLP.uniform(keys.fold(key, "obs"), (torso.size, width)),
        MLP.uniform(keys.fold(key, "action"), (actions.outputs, width)),
        jax.random.normal(keys.fold(key, "time"), (config.horizon, width)),
        Norm(jnp.ones(width), jnp.zeros(width)),
        Transformer.create(stack, width, layers=config.layers, heads=config.heads),
        MLP.uniform(keys.fold(key, "head"), (width, actions.outputs)),
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
    """The beginning of an episode in each of ``envs`` environments."""
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
    """Actions for ``(env, ...)`` observations that follow what is remembered, and a memory with
    them in it. Choices are sampled to explore, otherwise the likeliest; boxes are always the same.
    """
    obs, memory, done = state.normaliser(obs), past.memory, state.actions.codes(past.action)
    wanted = memory.wanted - past.reward / state.scale
    time = jnp.where(past.first, memory.time, memory.time + 1)
    taken = memory.context.action.at[:, -1].set(done)
    context = eqx.tree_at(lambda c: c.action, memory.context, taken)
    parts = (wanted, state.nets.torso(obs), jnp.zeros_like(done), time, jnp.ones_like(past.first))
    now = Context(*(part[:, None] for part in parts))
    context = jax.tree.map(lambda old, new: jnp.concatenate([old[:, 1:], new], 1), context, now)
    outputs = state.nets(context)[:, -1]
    if state.actions.kind == "box":
        action: Any = jnp.tanh(outputs)
    else:
        pi = state.actions.distribution(outputs, action_mask(obs))
        action = pi.sample(key) if explore else pi.mode()
    return state.actions.shaped(action), Memory(context, wanted, time), {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on stretches ``(batch, time, ...)``."""
    config = state.config
    grads, total = jax.grad(loss, has_aux=True)(state.nets, state, batch)
    direction, optimiser = adam(max_norm=config.max_grad_norm).update(grads, state.optimiser)
    rate = risen(config.lr, state.updates, config.rise)
    direction = jax.tree.map(lambda d, p: d + config.weight_decay * p, direction, state.nets)
    nets = descend(state.nets, direction, rate)
    learned = eqx.tree_at(
        lambda s: (s.nets, s.optimiser, s.updates), state, (nets, optimiser, state.updates + 1)
    )
    return learned, Signals({"loss/policy": total, "loss/grad_norm": global_norm(grads)})


def loss(nets: Nets, state: State, batch: Record) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """L of the module docstring, twice."""
    obs, actions = state.normaliser(batch.obs), state.actions
    wanted = batch.extras["monte_carlo"] / state.scale
    logged = actions.codes(batch.action)
    outputs = nets(Context(wanted, nets.torso(obs), logged, batch.extras["time"], batch.mask))
    if actions.kind == "box":
        each = jnp.mean(jnp.square(jnp.tanh(outputs) - logged), -1)
    else:
        each = -actions.distribution(outputs, action_mask(obs)).log_prob(batch.action)
    total = masked_mean(each, batch.mask)
    return total, total
