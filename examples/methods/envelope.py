"""Envelope Q-learning (Yang 2019, arXiv:1908.08342): one network of the values of all objectives,
for every preference between them, which learns from the best of all preferences.

    values     Q(s, a, w), a vector: one value for each objective, larger is better
    acts       argmax_a w . Q(s, a, w), for the preference w that is observed
    target     y = r + gamma Q'(s', a', w'),   a', w' = argmax_{a, w'} w . Q(s', a, w')
    loss       (1 - l) E |y - Q(s, a, w)|^2 + l E |w . y - w . Q(s, a, w)|

Each transition is learned from under ``preferences`` new ones w, uniform on the simplex, which are
also those w' that the target chooses among; l rises from 0 to 1 over the run. Three seeds on which
nothing was tuned reached a front of 379 [354, 404] of 401.8 by

    sterling train examples/methods/envelope.py examples/worlds/deep_sea_treasure.py:Sea \\
        --steps 40_000 --envs 8 --seeds 10,11,12 --evaluate-episodes 100

A maximum over more w' finds larger errors of Q, and the agent moves about without end. Such a run
with --preferences 8 --batch 64 --gamma 0.99 reached 326 [271, 382], and 399 [394, 405] when the
target chose a' under w alone, as it does in the authors' code (github.com/RunzheYang/MORL, issue
18). Deviations: no prioritised replay, l rises linearly, the step size falls to 0.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Count, Depth, Limit, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

checked_in = {"environment": "probe:objectives"}


@config
class Config:
    """Fields that DQN has too mean the same."""

    lr: NotNegative = 1e-3  # Adam's step size
    anneal: bool = True  # step size falls linearly to 0 over the run
    gamma: Share = 0.98  # discount per step
    batch: Count = 256  # transitions per update
    preferences: Count = 2  # new preferences under which each is learned from
    collect: Count = 1  # steps of each env per update
    capacity: Count = 50_000  # replay capacity in transitions, per seed
    warmup: Whole = 1_000  # steps with random actions before the first update
    target_period: Count = 1  # updates between changes of the target network
    tau: Share = 0.01  # share by which the target network moves at each change
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.1  # final epsilon
    exploration_fraction: Share = 0.5  # share of the planned updates over which it is annealed
    max_grad_norm: Limit = 10.0  # gradients are clipped to this global norm
    width: Sizes = 128  # units per hidden layer
    depth: Depth = 2  # hidden layers


class Network(eqx.Module):
    """Q(s, ., w); the observation holds w."""

    torso: Encoder
    head: MLP
    actions: Actions = eqx.field(static=True)

    def __call__(self, obs: Obs) -> Float[Array, "... actions objectives"]:
        """Return the values of every action."""
        flat = self.head(self.torso(obs))
        return flat.reshape(*flat.shape[:-1], self.actions.outputs, -1)


class State(eqx.Module):
    """Everything that changes during training."""

    net: Network
    target: Network
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    signs: Float[Array, "objectives"]  # -1 for an objective of which less is better
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from replay, with the objectives of each."""
    sizes = config.batch, config.collect, 1, config.capacity, config.warmup
    return Transitions(*sizes, keep=("objectives",))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raise Mistake for a world without objectives or an observed preference."""
    if "objectives" not in spec.channels or "preference" not in getattr(spec.obs, "spaces", {}):
        raise Mistake("envelope needs a channel 'objectives' and an observed entry 'preference'.")
    actions = supported_actions("envelope", spec.action, ("discrete",), ONLINE)
    channel = spec.channels["objectives"]
    signs = jnp.array(channel.directions or (channel.better or 1,) * len(channel.parts))
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    sizes = (torso.size, *hidden, actions.outputs * len(channel.parts))
    net = Network(torso, MLP.uniform(random_keys.fold(key, "head"), sizes, "relu"), actions)
    planned = jnp.asarray(float(spec.iterations))
    target, zero = jax.tree.map(jnp.copy, net), jnp.zeros((), jnp.int32)
    return State(net, target, adam().init(net), zero, planned, signs.astype(jnp.float32), config)


def act(state: State, obs: Obs, key: Key[Array, ""], explore: bool) -> tuple[Action, dict]:
    """Return the best action for the preference; with ``explore`` sometimes a random one."""
    q = jnp.einsum("...k,...ak->...a", obs["preference"], state.net(obs))
    return dqn.act_by_values(state, q, obs, key, explore)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    share = state.updates.astype(jnp.float32) / state.planned
    shape = (state.config.preferences, state.signs.size)
    drawn = jax.random.exponential(random_keys.fold(key, "preferences"), shape)
    each = drawn / drawn.sum(-1, keepdims=True)
    reward = batch.extras["objectives"] * state.signs[None]
    chosen_by, every = (under(net, batch.next_obs, each) for net in (state.net, state.target))
    flat = (len(every), -1, shape[1])  # actions and preferences in one axis
    best = jnp.einsum("nk,bik->bni", each, chosen_by.reshape(flat)).argmax(-1)
    best = jnp.take_along_axis(every.reshape(flat), best[..., None], 1)
    target = reward[:, None] + state.config.gamma * batch.discount[:, None, None] * best

    def loss(net: Network) -> tuple[Float[Array, ""], dict[str, Array]]:
        every = under(net, batch.obs, each)
        q = jnp.take_along_axis(every, batch.action[:, None, None, None], 2)[:, :, 0]
        error = target - q
        apart = masked_mean(jnp.square(error).sum(-1).mean(-1), batch.mask)
        along = masked_mean(jnp.abs(jnp.einsum("nk,bnk->bn", each, error)).mean(-1), batch.mask)
        total = (1.0 - share) * apart + share * along
        return total, {"loss/value": total, "value/q": masked_mean(q.mean((1, 2)), batch.mask)}

    grads, metrics = jax.grad(loss, has_aux=True)(state.net)
    return dqn.descend_q(state, grads), Signals(metrics | {"policy/epsilon": dqn.epsilon(state)})


def under(net: Network, obs: Obs, each: Array) -> Float[Array, "batch each actions objectives"]:
    """Return the values of every observation under each preference."""

    def one(weights: Float[Array, "objectives"]) -> Float[Array, "batch actions objectives"]:
        return net({**obs, "preference": jnp.broadcast_to(weights, obs["preference"].shape)})

    return jax.vmap(one, out_axes=1)(each)
