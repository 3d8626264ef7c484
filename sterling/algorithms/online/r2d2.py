"""R2D2: Q-learning with a memory, from replayed stretches (Kapturowski 2019, "Recurrent Experience
Replay in Distributed Reinforcement Learning", ICLR).

    memory      h_t = GRU(h_{t-1}, tanh(W [features(s_t), a_{t-1}, r_{t-1}]))      h_{-1} = 0
    values      Q(h_t, a) = V(h_t) + A(h_t, a) - mean_a A(h_t, a)      (without dueling: A alone)
    target      y_t = h( sum_{k<m} gamma^k r_{t+k} + gamma^m h^-1(Q'(h'_{t+m}, a*)) )
                a*  = argmax_a Q(h_{t+m}, a);   m = n, or fewer where episode or stretch end before
    loss        L   = 1/2 E[ w (y_t - Q(h_t, a_t))^2 ],   w the stretch's importance weight
    priority    p   = eta max_t |d_t| + (1 - eta) mean_t |d_t|,    d_t = y_t - Q(h_t, a_t)
    rescaling   h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x
    behaviour   a uniformly at random with probability e_i, else argmax_a Q(h, a), where
                e_i = e^(1 + spread i / (N - 1)) in environment i of N        (Horgan 2018, Ape-X)

Q' is the target network, a copy of Q taken every ``target_period`` updates; it has a memory of its
own. A stretch is ``burn_in`` rows that only bring the memory up to date, from the one that was
recorded when they were lived, then ``length`` rows that are learned from; gradients do not reach
into the burn-in. What was done and earned before the first row says one row more, which comes
first.

Epsilon differs between environments and is never annealed: who remembers must also see episodes
that go as the policy means them, from the first update on, and a run's budget changes nothing.

Deviations from the paper: stretches begin at any row and may cross episodes, with a memory that
begins anew as it did in acting (the paper's end with an episode and overlap by half); a GRU for the
LSTM; actors and learner take turns. What is recorded of a memory is as old as its row: it is not
refreshed when its stretch is learned from. ``correction`` is constant.
Evidence: benchmarks/results/memory.md.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.actor import Past
from sterling.algorithms.online.dqn import allowed
from sterling.equations.average import masked_mean
from sterling.equations.returns import continues
from sterling.equations.value import (
    double_q,
    dueling,
    rescaled,
    returns_within,
    take_action,
    unrescaled,
)
from sterling.field_types import Count, Limit, NotNegative, Share, Whole
from sterling.nets.distributions import Categorical
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.nets.recurrent import Recurrent
from sterling.types import Action, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are the paper's (table 2) but for sizes that ask for a cluster: ``collect``,
    ``capacity``, ``warmup`` and ``width``."""

    lr: NotNegative = 1e-4  # Adam's step size
    gamma: Share = 0.997  # discount per step
    batch: Count = 64  # stretches per update
    burn_in: Whole = 40  # rows of a stretch that only bring the memory up to date
    length: Count = 80  # rows of a stretch that are learned from
    n_step: Count = 5  # n: rewards summed before bootstrapping
    collect: Count = 16  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 200_000  # rows kept, over all envs of a seed, each with a memory
    warmup: Whole = 10_000  # steps with random actions before the first update
    target_period: Count = 2_500  # updates between two copies of the target network
    rescale: NotNegative | None = 1e-3  # eps of h; None: values are not rescaled
    exploration: Share = 0.4  # e: probability of a random action in the first env
    spread: NotNegative = 7.0  # how much smaller it is in the others
    dueling: bool = True  # separate streams for V and A
    priority: NotNegative | None = 0.9  # exponent of prioritised replay; None: uniform
    correction: Share = 0.6  # exponent of its importance weights, constant
    eta: Share = 0.9  # share of a stretch's largest error in its priority; the rest is the mean
    max_grad_norm: Limit = 40.0  # global norm that gradients are clipped to
    width: Count = 128  # numbers in the memory, and units per hidden layer


class Nets(Recurrent):
    """Memory and action values; ``value`` is the second stream of a dueling network."""

    advantage: MLP
    value: MLP | None

    def q(self, hidden: Float[Array, "... width"]) -> Float[Array, "... actions"]:
        """Q(h, .), rescaled."""
        q = self.advantage(hidden)
        return q if self.value is None else dueling(self.value(hidden), q)


class State(eqx.Module):
    """Everything that changes."""

    net: Nets
    target: Nets
    optimiser: optax.OptState
    updates: Int[Array, ""]  # updates made; as a float it would stop at 2^24
    config: Config


def needs(config: Config) -> Needs:
    """Stretches of a replay, and the memory that each row left behind."""
    feed = Feed(
        batch=config.batch,
        updates=config.learn,
        length=1 + config.burn_in + config.length,
        priority=config.priority or 0.0,
        correction=float(config.correction) if config.priority else 1.0,
    )
    kept = ("begins", "memory")
    return Needs(config.collect, (feed,), config.capacity, config.warmup, kept)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are not one choice among several."""
    if not isinstance(spec.action, spaces.Discrete):
        raise Mistake(f"r2d2 cannot act in {spec.action}; use recurrent-ppo")
    sizes = (config.width, config.width)
    advantage = MLP.uniform(keys.fold(key, "advantage"), (*sizes, int(spec.action.n)))
    value = MLP.uniform(keys.fold(key, "value"), (*sizes, 1)) if config.dueling else None
    net = Nets(*Nets.parts(key, spec, config.width), advantage, value)
    slow = jax.tree.map(jnp.copy, net)
    return State(net, slow, adam().init(net), jnp.zeros((), jnp.int32), config)


def memory(state: State, envs: int, key: Key[Array, ""]) -> Float[Array, "env width"]:
    """h_{-1}."""
    return jnp.zeros((envs, state.config.width))


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env width"], dict[str, Array]]:
    """The best action, or with each env's probability any that is allowed; and h_t."""
    hidden = state.net.recalled(past, obs)
    q = allowed(state.net.q(hidden), obs)
    greedy = Categorical(q).mode()
    if not explore:
        return greedy, hidden, {}
    chance = Categorical(allowed(jnp.zeros_like(q), obs)).sample(keys.fold(key, "chance"))
    dice = jax.random.uniform(keys.fold(key, "wander"), greedy.shape)
    wander = dice < epsilon(state.config, greedy.shape[0])
    return jnp.where(wander, chance, greedy), hidden, {"memory": hidden}


def value(state: State, past: Past, obs: Obs) -> Float[Array, "env"]:
    """max_a Q(h, a), not rescaled: the return expected of the greedy policy."""
    q = state.net.q(state.net.recalled(past, obs))
    return _plain(allowed(q, obs).max(-1), state.config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on stretches ``(batch, time, ...)``."""
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
    """L of the module docstring on a batch; also each stretch's p, before its exponent."""
    rows = by_time(batch)
    own = jax.tree.map(lambda x: x[1 + config.burn_in :], rows)
    every = jax.tree.map(lambda x, after: jnp.concatenate([x, after[-1:]]), own.obs, own.next_obs)
    q = net.q(unrolled(net, rows, config.burn_in))
    slow = target.q(unrolled(target, rows, config.burn_in))
    best = _plain(double_q(allowed(q, every), allowed(slow, every)), config)
    total, decay, steps = returns_within(
        own.reward, config.gamma * own.discount, continues(own.last, own.mask), config.n_step
    )
    place = jnp.arange(config.length, dtype=jnp.int32)[:, None] + steps
    y = _rescaled(total + decay * jnp.take_along_axis(best, place, 0), config)
    chosen, mask = take_action(q[:-1], own.action), own.mask
    error = jax.lax.stop_gradient(y) - chosen
    weight = batch.extras.get("weight", jnp.ones(mask.shape[1]))
    loss = masked_mean(weight[None] * 0.5 * jnp.square(error), mask)
    size = jnp.where(mask, jnp.abs(error), 0.0)
    mean = size.sum(0) / jnp.maximum(mask.sum(0).astype(jnp.float32), 1.0)
    priority = config.eta * size.max(0) + (1.0 - config.eta) * mean
    return loss, ({"loss/value": loss, "value/q": masked_mean(chosen, mask)}, priority)


def unrolled(net: Nets, rows: Record, burn_in: int) -> Float[Array, "time batch width"]:
    """h of each row ``(time, batch, ...)`` that is learned from, and of the observation after the
    last. A stretch's first row gives the memory that it left behind, its action and its reward."""
    seen = jax.tree.map(
        lambda x, after: jnp.concatenate([x[1:], after[-1:]]), rows.obs, rows.next_obs
    )
    begins, memory = rows.extras["begins"], rows.extras["memory"][:1]
    # the last row's successor belongs to its episode wherever that row is experience
    begins = jnp.concatenate([begins[1:], jnp.zeros_like(begins[:1])])
    given = net.inputs(seen, rows.action, rows.reward, begins)
    before = net.memory.unroll(memory[0], given[:burn_in], begins[:burn_in])
    start = jax.lax.stop_gradient(jnp.concatenate([memory, before])[-1])
    return net.memory.unroll(start, given[burn_in:], begins[burn_in:])


def epsilon(config: Config, envs: int) -> Float[Array, "env"]:
    """e_i of the module docstring; of a single environment the middle one."""
    share = jnp.linspace(0.0, 1.0, envs) if envs > 1 else jnp.full(1, 0.5)
    return jnp.power(config.exploration, 1.0 + config.spread * share)


def by_time(batch: Record) -> Record:
    """The stretches' rows ``(time, batch, ...)``."""
    kept = {name: batch.extras[name] for name in ("begins", "memory")}
    rows = dataclasses.replace(batch, extras=kept)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)


def _rescaled(x: Float[Array, "..."], config: Config) -> Float[Array, "..."]:
    return x if config.rescale is None else rescaled(x, config.rescale)


def _plain(q: Float[Array, "..."], config: Config) -> Float[Array, "..."]:
    return q if config.rescale is None else unrescaled(q, config.rescale)
