"""DreamerV3 (Hafner 2023, arXiv:2301.04104): an actor and a critic that learn in a model's dreams.

    model    h_t = GRU(h_{t-1}, z_{t-1}, a_{t-1}),  z_t ~ q(h_t, x_t),  z^_t ~ p(h_t),  s = (h, z)
    L        = E[ 1/2 |x^(s_t) - x_t|^2 + CE(r^(s_t), r_t) + CE(c^(s_t), c_t)
               + max(1, KL(sg q | p)) + 0.1 max(1, KL(q | sg p)) ]
    dreams   from every s_t: a ~ pi(s), z ~ p(h), r = r^(s'), c = c^(s'); 15 steps
    returns  R_t = r_t + gamma c_t ((1 - lambda) v(s_{t+1}) + lambda R_{t+1}),   R_H = v(s_H)
    critic   CE(v(s_t), R_t) + CE(v(s_t), v'(s_t)),   v' its running average
    actor    -E[ log pi(a_t | s_t) sg (R_t - v(s_t)) / scale + eta H(pi) ]

r_t and c_t are what the step to x_t earned, and whether the episode went on. z are one-hot choices,
1 % of whose probabilities is uniform; r^ and v are distributions over bins; ``scale`` is the range
of returns. The replay keeps s with its rows, and learning writes it anew. Deviations: vectors,
normalised in place of symlog; small networks, one Adam; the critic learns from dreams alone.
Reached: 374 [154, 500] in CartPole (402, 445, 275; random policies: 22).

    sterling train examples/methods/dreamerv3.py CartPole-v1 --steps 8000 --seeds 3
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.returns import lambda_returns
from sterling.equations.sequence_rows import time_major
from sterling.equations.two_hot import Bins
from sterling.equations.value_range import Range
from sterling.field_types import Count, NotNegative, Share, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.distributions import Categorical, Normal, OneHotGroups
from sterling.nets.dynamics_network import observation_size
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.nets.recurrence.rssm import Rssm
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, config

LAMBDA, TAU, BINS = 0.95, 0.02, 255  # of returns; rate of the critic's average; of distributions
HALF = np.expm1(np.linspace(0.0, 20.0, 128)).astype(np.float32)  # as exact opposites: mean 0


@config
class Config:
    """Defaults are the paper's, but for sizes and rates; the paper's in brackets."""

    lr: NotNegative = 1e-3  # Adam's step size, 0.3 of it for actor and critic (1e-4 and 3e-5)
    gamma: Share = 0.997  # discount per step
    entropy: NotNegative = 3e-3  # eta: weight of the policy's entropy (3e-4)
    batch: Count = 16  # sequences per update
    length: Count = 32  # rows of a sequence (64)
    horizon: Count = 15  # steps of a dream
    collect: Count = 4  # steps of each env per iteration
    capacity: Count = 100_000  # replay capacity in rows (each with a memory), per seed (1e6)
    warmup: Whole = 500  # steps with random actions before the first update
    groups: Count = 8  # choices of z (32)
    classes: Count = 8  # options of each (32)
    width: Count = 128  # numbers of h, and units of hidden layers (512 and more)


class Nets(eqx.Module):
    """The model, the actor and the critic."""

    model: Rssm
    decoder: MLP  # the observation, bins of the reward, the logit of going on
    actor: MLP
    critic: MLP
    actions: Actions = eqx.field(static=True)

    def policy(self, s: Array) -> Categorical | Normal:
        """Return the distribution of actions."""
        if self.actions.kind == "discrete":
            return Categorical(OneHotGroups.mixed(self.actor(s), 1).log_p[..., 0, :])
        mean, spread = jnp.split(self.actor(s), 2, -1)
        return Normal(jnp.tanh(mean), jnp.log(0.1 + 0.9 * jax.nn.sigmoid(spread + 2.0)))


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: MLP
    optimiser: optax.OptState
    range: Range
    normaliser: ObsNormaliser
    config: Config

    bins = property(lambda self: Bins(jnp.concatenate([-HALF[:0:-1], HALF])), doc="Of r^ and v.")


def needs(config: Config) -> Needs:
    """Ask for sequences of the replay, for the memory before each, and for their places."""
    feed = Feed(batch=config.batch, length=config.length, add=("place",))
    return Needs(config.collect, (feed,), config.capacity, config.warmup, ("begins", "memory"))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent; observations must be vectors, actions one choice or a box."""
    actions = supported_actions("dreamerv3", spec.action, ("box", "discrete"), ONLINE)
    seen, n = observation_size(spec.obs, "Use recurrent-ppo."), actions.outputs
    model = Rssm.create(key, (n, seen), config.width, config.groups, config.classes)

    def net(name: str, outputs: int, last: float) -> MLP:
        own, sizes = random_keys.fold(key, name), (model.size, config.width, outputs)
        return MLP.orthogonal(own, sizes, "silu", last, layer_norm=True)

    nets = Nets(
        model,
        net("decoder", seen + BINS + 1, 0.0),
        net("actor", n * (2 if actions.kind == "box" else 1), 0.01),
        net("critic", BINS, 0.0),
        actions,
    )
    target, seen = jax.tree.map(jnp.copy, nets.critic), ObsNormaliser.create(spec.obs)
    return State(nets, target, adam().init(nets), Range.create(), seen, config)


def memory(state: State, envs: int, key: Key[Array, ""]) -> Float[Array, "env numbers"]:
    """Return the states before the first step: 0."""
    return jnp.zeros((envs, state.nets.model.size))


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env numbers"], dict[str, Array]]:
    """Return an action of the policy, drawn to ``explore``, and the state s."""
    before = past.memory, state.nets.actions.encode(past.action), past.first, state.normaliser(obs)
    s, _ = state.nets.model.observe(*before, random_keys.fold(key, "latent"))
    pi = state.nets.policy(s)
    chosen = pi.sample(random_keys.fold(key, "action")) if explore else pi.mode()
    return state.nets.actions.shaped(chosen), s, {}


def value(state: State, past: Past, obs: Obs, key: Key[Array, ""]) -> Float[Array, "env"]:
    """Return v(s)."""
    return state.bins.mean(state.nets.critic(recall(state, past, obs, key, False)[1]))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update all networks once on sequences ``(batch, time, ...)``; refresh their memories."""
    c, normaliser = state.config, state.normaliser.update(batch.obs, batch.mask)
    rows = time_major(normaliser.batch(batch))
    grads, (s, values, metrics) = jax.grad(loss, has_aux=True)(state.nets, state, rows, key)
    direction, optimiser = adam(max_norm=100.0).update(grads, state.optimiser)
    nets, slow = (descend(state.nets, direction, rate) for rate in (c.lr, 0.3 * c.lr))
    nets = eqx.tree_at(lambda x: (x.actor, x.critic), nets, (slow.actor, slow.critic))
    target = polyak(state.target, nets.critic, TAU)
    before, begins = jnp.concatenate([rows.start.memory[None], s[:-1]]), rows.extras["begins"]
    stored = {"memory": jnp.swapaxes(jnp.where(begins[..., None], 0.0, before), 0, 1)}
    return State(nets, target, optimiser, values, normaliser, c), Signals(metrics, {}, stored)


def loss(nets: Nets, state: State, rows: Record, key: Key[Array, ""]) -> tuple[Array, tuple]:
    """Return the sum of all losses of rows ``(time, batch, ...)``; states, the range, metrics."""
    s, means = model_losses(nets, state.bins, rows, random_keys.fold(key, "model"))
    starts, own = jax.lax.stop_gradient(s).reshape(-1, s.shape[-1]), random_keys.fold(key, "dream")
    dreamt, values = dream_losses(nets, state, starts, rows.mask.reshape(-1), own)
    means |= dreamt
    return sum(x for name, x in means.items() if "loss" in name), (s, values, means)


def model_losses(nets: Nets, bins: Bins, rows: Record, key: Key[Array, ""]) -> tuple[Array, dict]:
    """Return the states s of rows, ``(time, batch, numbers)``, and the losses of the model."""
    past, stopped = rows.start, jax.lax.stop_gradient
    before = (past.action, rows.action), (past.reward, rows.reward), (past.discount, rows.discount)
    action, reward, goes_on = (jnp.concatenate([x[None], y[:-1]]) for x, y in before)
    given = nets.actions.encode(action), rows.extras["begins"], rows.obs, key
    s, q = nets.model.unroll(past.memory, *given)
    p = nets.model.expected(s)
    n = rows.obs.shape[-1]
    obs, outcome, ends = jnp.split(nets.decoder(s), [n, n + BINS], -1)
    goes_on = optax.sigmoid_binary_cross_entropy(ends[..., 0], jnp.abs(goes_on))
    met = rows.mask | jnp.concatenate([rows.mask[:1], rows.mask[:-1]])  # also where episodes end
    arrived = met & ~rows.extras["begins"]
    return s, {
        "loss/decode": masked_mean(0.5 * jnp.sum(jnp.square(obs - rows.obs), -1), met),
        "loss/reward": masked_mean(bins.loss(outcome, reward), arrived),
        "loss/goes_on": masked_mean(goes_on, arrived),
        "loss/dynamics": masked_mean(jnp.maximum(1.0, stopped(q).kl(p)), met),
        "loss/represent": 0.1 * masked_mean(jnp.maximum(1.0, q.kl(stopped(p))), met),
    }


def dream_losses(
    nets: Nets, state: State, s: Array, mask: Bool[Array, "start"], key: Key[Array, ""]
) -> tuple[dict[str, Float[Array, ""]], Range]:
    """Return the losses of actor and critic in dreams from states s, and the range of returns."""
    c, bins, fixed = state.config, state.bins, jax.lax.stop_gradient(nets)

    def step(s: Array, key: Key[Array, ""]) -> tuple[Array, tuple[Array, Action]]:
        keys = random_keys.split(key, "dream", 2)
        action = nets.actions.shaped(fixed.policy(s).sample(keys[0]))
        return fixed.model.imagine(s, nets.actions.encode(action), keys[1]), (s, action)

    end, (s, action) = jax.lax.scan(step, s, jax.random.split(key, c.horizon))
    s = jnp.concatenate([s, end[None]])
    outcome, v = fixed.decoder(s[1:]), bins.mean(fixed.critic(s))
    reward, discount = bins.mean(outcome[..., -BINS - 1 : -1]), jax.nn.sigmoid(outcome[..., -1])
    discount, mask = c.gamma * discount, jnp.broadcast_to(mask, discount.shape)
    goes_on = jnp.arange(c.horizon, dtype=jnp.int32)[:, None] < c.horizon - 1  # R_H = v(s_H)
    returns = lambda_returns(reward, discount, v[1:], goes_on, lam=LAMBDA)
    values = state.range.update(returns, mask, 0.01)
    weight = jnp.cumprod(jnp.concatenate([jnp.ones_like(discount[:1]), discount[:-1]]), 0)
    pi, logits = nets.policy(s[:-1]), nets.critic(s[:-1])
    gain = pi.log_prob(nets.actions.flat(action)) * (returns - v[:-1]) / values.scale()
    slow, entropy = bins.mean(state.target(s[:-1])), pi.entropy()
    each = {
        "loss/actor": -weight * (gain + c.entropy * entropy),
        "loss/critic": weight * (bins.loss(logits, returns) + bins.loss(logits, slow)),
        **{"value/return": returns, "policy/entropy": entropy},
    }
    return {name: masked_mean(x, mask) for name, x in each.items()}, values
