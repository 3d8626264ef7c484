"""R2D2: recurrent Q-learning from replayed sequences (Kapturowski 2019, "Recurrent Experience
Replay in Distributed Reinforcement Learning", ICLR).

    memory      h_t = GRU(h_{t-1}, tanh(W [features(s_t), a_{t-1}, r_{t-1}]))      h_{-1} = 0
    values      Q(h_t, a) = V(h_t) + A(h_t, a) - mean_a A(h_t, a)      (without dueling: A alone)
    target      y_t = h( sum_{k<m} gamma^k r_{t+k} + gamma^m h^-1(Q'(h'_{t+m}, a*)) )
                a*  = argmax_a Q(h_{t+m}, a);   m = n, or less near the end of episode or sequence
    loss        L   = 1/2 E[ w (y_t - Q(h_t, a_t))^2 ],   w the sequence's importance weight
    priority    p   = eta max_t |d_t| + (1 - eta) mean_t |d_t|,    d_t = y_t - Q(h_t, a_t)
    rescaling   h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x
    behaviour   a uniformly at random with probability e_i, else argmax_a Q(h, a), where
                e_i = e^(1 + spread i / (N - 1)) in environment i of N        (Horgan 2018, Ape-X)

Q' is the target network, copied from Q every ``target_period`` updates; it has its own memory. A
sequence is ``burn_in`` rows that only bring the memory up to date, starting from the recorded past,
then ``length`` rows that are learned from. Gradients stop at the end of the burn-in.

Epsilon differs between environments and is never annealed, so that from the first update on some
episodes follow the policy closely, and the run's budget changes nothing.

Deviations from the paper: sequences begin at any row and may cross episodes, where the memory is
reset as in acting (the paper's end with an episode and overlap by half); a GRU instead of an LSTM
(which ``memory`` can choose, or one of the linear units in nets/recurrence/); actors and
learner alternate. Recorded memories are those of acting, and are not refreshed when their sequence
is learned from. ``correction`` is constant.
Evidence: benchmarks/results/memory.md.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.algorithms.online.dqn import mask_forbidden
from sterling.equations.masked_average import masked_mean
from sterling.equations.returns import continues
from sterling.equations.sequence_rows import time_major
from sterling.equations.value_losses import (
    double_q,
    dueling,
    q_of_action,
    rescale_value,
    stretch_n_step_returns,
    unrescale_value,
)
from sterling.field_types import Activation, Count, Limit, Memory, NotNegative, Share, Whole
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.distributions import Categorical
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.nets.recurrence.recurrent_network import RecurrentCore
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are the paper's (table 2), except sizes that need a cluster: ``collect``,
    ``capacity``, ``warmup`` and ``width``."""

    lr: NotNegative = 1e-4  # Adam's step size
    gamma: Share = 0.997  # discount per step
    batch: Count = 64  # sequences per update
    burn_in: Whole = 40  # first rows of a sequence, which only update the memory
    length: Count = 80  # rows of a sequence that are learned from
    n_step: Count = 5  # n: rewards summed before bootstrapping
    collect: Count = 16  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 200_000  # replay capacity in rows (each with a memory), per seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    target_period: Count = 2_500  # updates between copies to the target network
    rescale: NotNegative | None = 1e-3  # eps of the value rescaling h; None: no rescaling
    exploration: Share = 0.4  # e: probability of a random action in the first env
    spread: NotNegative = 7.0  # the last env's probability is exploration^(1 + spread)
    dueling: bool = True  # separate streams for V and A
    priority: NotNegative | None = 0.9  # exponent of prioritised replay; None: uniform
    correction: Share = 0.6  # exponent of the importance weights of prioritised replay (constant)
    eta: Share = 0.9  # weight of a sequence's largest error in its priority (the rest: mean error)
    max_grad_norm: Limit = 40.0  # gradients are clipped to this global norm
    width: Count = 128  # size of the memory, and of hidden layers
    memory: Memory = "gru"  # kind of unit: gru, lstm, lru or s5 (both linear)
    activation: Activation = "relu"  # of the value streams: tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers of the value streams


class Nets(RecurrentCore):
    """Memory and action values; ``value`` is the second stream of a dueling network."""

    advantage: MLP
    value: MLP | None

    def q(self, features: Float[Array, "... width"]) -> Float[Array, "... actions"]:
        """Return Q(h, .), rescaled by h."""
        q = self.advantage(features)
        return q if self.value is None else dueling(self.value(features), q)


class State(eqx.Module):
    """Everything that changes during training."""

    net: Nets
    target: Nets
    optimiser: optax.OptState
    updates: Int[Array, ""]  # updates made; as a float it would stop at 2^24
    config: Config


def needs(config: Config) -> Needs:
    """Ask for replayed sequences, and for the memory before each."""
    feed = Feed(
        batch=config.batch,
        updates=config.learn,
        length=config.burn_in + config.length,
        priority=config.priority or 0.0,
        correction=float(config.correction) if config.priority else 1.0,
    )
    return Needs(config.collect, (feed,), config.capacity, config.warmup, ("begins", "memory"))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Discrete."""
    others = dict.fromkeys(ONLINE, "recurrent-ppo")
    actions = supported_actions("r2d2", spec.action, ("discrete",), others)

    def stream(name: str, outputs: int) -> MLP:
        sizes, norm = (config.width, config.width, outputs), config.layer_norm
        own_key = random_keys.fold(key, name)
        return MLP.uniform(own_key, sizes, config.activation, layer_norm=norm)

    value = stream("value", 1) if config.dueling else None
    shared = Nets.parts(key, spec, config.width, config.memory)
    net = Nets(*shared, stream("advantage", actions.outputs), value)
    copy = jax.tree.map(jnp.copy, net)
    return State(net, copy, adam().init(net), jnp.zeros((), jnp.int32), config)


def memory(state: State, envs: int, key: Key[Array, ""]) -> Float[Array, "env numbers"]:
    """Return the initial memory h_{-1} = 0."""
    return jnp.zeros((envs, state.net.memory.size))


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env numbers"], dict[str, Array]]:
    """Return the best action (with ``explore`` and the env's epsilon a random one), and h_t."""
    hidden, features = state.net.remember(past, obs)
    sizes = state.net.actions.sizes
    q = mask_forbidden(state.net.q(features), obs, sizes)
    greedy = Categorical(q).mode()
    if not explore:
        return greedy, hidden, {}
    random_action = Categorical(mask_forbidden(jnp.zeros_like(q), obs, sizes)).sample(
        random_keys.fold(key, "chance")
    )
    draw = jax.random.uniform(random_keys.fold(key, "wander"), greedy.shape)
    is_random = draw < epsilon(state.config, greedy.shape[0])
    return jnp.where(is_random, random_action, greedy), hidden, {}


def value(state: State, past: Past, obs: Obs, key: Key[Array, ""]) -> Float[Array, "env"]:
    """Return max_a Q(h, a) without rescaling, the expected return of the greedy policy."""
    q = state.net.q(state.net.remember(past, obs)[1])
    return _unrescale(mask_forbidden(q, obs, state.net.actions.sizes).max(-1), state.config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on sequences ``(batch, time, ...)``."""
    config = state.config
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.net, state.target, batch, config)
    direction, optimiser = adam(max_norm=config.max_grad_norm).update(grads, state.optimiser)
    net = descend(state.net, direction, config.lr)
    updates = state.updates + 1
    due = jnp.mod(updates, config.target_period) == 0
    target = jax.tree.map(lambda old, new: jnp.where(due, new, old), state.target, net)
    metrics = {**metrics, "loss/grad_norm": global_norm(grads)}
    return State(net, target, optimiser, updates, config), Signals(metrics, {"td_error": error})


def loss(
    net: Nets, target: Nets, batch: Record, config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Float[Array, ""]], Float[Array, "batch"]]]:
    """Return L of the module docstring on a batch, metrics, and each sequence's priority p."""
    rows = time_major(batch)
    learned = jax.tree.map(lambda x: x[config.burn_in :], dataclasses.replace(rows, start=None))
    all_obs = jax.tree.map(
        lambda x, after: jnp.concatenate([x, after[-1:]]), learned.obs, learned.next_obs
    )
    q = net.q(unroll_memory(net, rows, config.burn_in))
    target_q = target.q(unroll_memory(target, rows, config.burn_in))
    allowed_q = (mask_forbidden(x, all_obs, net.actions.sizes) for x in (q, target_q))
    best = _unrescale(double_q(*allowed_q), config)
    total, decay, steps = stretch_n_step_returns(
        learned.reward,
        config.gamma * learned.discount,
        continues(learned.last, learned.mask),
        config.n_step,
    )
    place = jnp.arange(config.length, dtype=jnp.int32)[:, None] + steps
    y = _rescale(total + decay * jnp.take_along_axis(best, place, 0), config)
    q_taken, mask = q_of_action(q[:-1], learned.action), learned.mask
    error = jax.lax.stop_gradient(y) - q_taken
    weight = batch.extras.get("weight", jnp.ones(mask.shape[1]))
    loss = masked_mean(weight[None] * 0.5 * jnp.square(error), mask)
    error_size = jnp.where(mask, jnp.abs(error), 0.0)
    mean = error_size.sum(0) / jnp.maximum(mask.sum(0).astype(jnp.float32), 1.0)
    priority = config.eta * error_size.max(0) + (1.0 - config.eta) * mean
    return loss, ({"loss/value": loss, "value/q": masked_mean(q_taken, mask)}, priority)


def unroll_memory(
    net: RecurrentCore, rows: Record, burn_in: int
) -> Float[Array, "time batch *agent width"]:
    """Return the features of h of each learned row ``(time, batch, ...)``, and of the observation
    after the last.
    ``rows.start`` is the past before the first row."""
    obs = jax.tree.map(lambda x, after: jnp.concatenate([x, after[-1:]]), rows.obs, rows.next_obs)
    past, begins = rows.start, rows.extras["begins"]
    # the last row's successor belongs to the same episode, if that row is valid
    begins = jnp.concatenate([begins, jnp.zeros_like(begins[:1])])
    action, reward = (
        jnp.concatenate([before[None], each])
        for before, each in ((past.action, rows.action), (past.reward, rows.reward))
    )
    inputs = net.inputs(obs, action, reward, begins)
    burnt = net.memories(past.memory, inputs[:burn_in], begins[:burn_in])
    start = jax.lax.stop_gradient(jnp.concatenate([past.memory[None], burnt])[-1])
    return net.unroll(start, inputs[burn_in:], begins[burn_in:])


def epsilon(config: Config, envs: int) -> Float[Array, "env"]:
    """Return e_i of the module docstring; a single environment gets the middle one."""
    share = jnp.linspace(0.0, 1.0, envs) if envs > 1 else jnp.full(1, 0.5)
    return jnp.power(config.exploration, 1.0 + config.spread * share)


def _rescale(x: Float[Array, "..."], config: Config) -> Float[Array, "..."]:
    return x if config.rescale is None else rescale_value(x, config.rescale)


def _unrescale(q: Float[Array, "..."], config: Config) -> Float[Array, "..."]:
    return q if config.rescale is None else unrescale_value(q, config.rescale)
