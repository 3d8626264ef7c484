"""Gumbel MuZero (Danihelka 2022; Schrittwieser 2020, arXiv:1911.08265): a tree search in a learned
model, whose policy and value learn what the search found.

    model    z_0 = h(s_t),   z_{k+1}, r_k, c_k = g(z_k, a_{t+k}),   logits_k, v_k = f(z_k)
    search   of the ``considered`` actions of the largest logits + Gumbel noise, sequential halving
             keeps those of the largest noise + logits + sigma(q), and takes the last one
    policy   pi'(s) = softmax(logits + sigma(q)),   sigma(q) = 0.1 (50 + most visits of an action) q
    targets  y_t = r_t + d r_{t+1} + ... + d^n v'(s_{t+n}),   d = gamma c, or -gamma c in games
    L        = E sum_k [ CE(pi'(s_{t+k}), logits_k) + CE(v_k, y_{t+k}) + CE(r_k, r_{t+k})
               + CE(c_k, goes on) ]

q of actions that were not visited is the mix of v and the others' q (appendix D), and forbidden
actions have no logits at the root. v and r are distributions over bins of symlog. Where two sides
move in turn, values are the mover's. The search is that of ``mctx``, the authors' library.

Deviations: c, whether the episode goes on, is learned, where MuZero learns that nothing is paid
after the end; v' is a slowly following copy's, not a stored search's; q is divided by the running
range of y, which is at least 1, not by that of its siblings; z are groups of 8 numbers with the
sum 1, as in TD-MPC2. Evaluation searches without noise. A row must be one move, so there is no
pool of opponents (``--sources pool``), whose rows are a move and the reply. Against the perfect
player three seeds earned 0, -0.07 and -0.01 (100 games each; random moves: -0.9) after

    sterling train examples/methods/muzero.py tictactoe:self --steps 60_000 --envs 32
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations.categorical_values import cross_entropy, make_support
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.symlog import SYMLOG
from sterling.equations.two_hot import Bins
from sterling.equations.value_range import Range
from sterling.field_types import Count, NotNegative, Share, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.simplicial_norm import simplices
from sterling.types import Action, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config

try:
    import mctx
except ImportError as missing:
    remedy = 'Gumbel MuZero searches with mctx. Install it: pip install "sterling-rl[search]"'
    raise Mistake(remedy) from missing

BINS = 101  # of rewards and values


@config
class Config:
    """Defaults suit small worlds; the paper's Atari numbers in brackets."""

    lr: NotNegative = 1e-3  # Adam's step size
    gamma: Share = 0.997  # discount per step
    tau: Share = 0.02  # rate at which the copy for targets and the range of values follow
    simulations: Count = 16  # model steps of a search
    considered: Count = 16  # actions that a search begins with, at most
    batch: Count = 64  # sequences per update (1024)
    learn: Count = 16  # updates per iteration
    collect: Count = 4  # steps of each env per iteration
    unroll: Count = 5  # steps of the model in a sequence
    n_step: Count = 10  # rewards summed before bootstrapping (5; all in games)
    capacity: Count = 20_000  # replay capacity in transitions, per seed
    warmup: Whole = 500  # steps with random actions before the first update
    groups: Count = 16  # z has 8 times as many numbers
    width: Count = 128  # units of the two hidden layers


class Nets(eqx.Module):
    """h, g and f."""

    encoder: Encoder
    start: MLP  # h
    dynamics: MLP
    outcome: MLP  # bins of the reward, and the logit of going on
    prediction: MLP  # f: logits of actions, bins of the value
    actions: Actions = eqx.field(static=True)

    def represent(self, obs: Obs) -> Float[Array, "... n"]:
        """Return h(s)."""
        return simplices(self.start(self.encoder(obs)))

    def step(self, z: Array, action: Array) -> tuple[Array, Array, Array]:
        """Return the next z, the bins' logits of the reward, and the logit of going on."""
        x = jnp.concatenate([z, self.actions.encode(action)], -1)
        outcome = self.outcome(x)
        return simplices(z + self.dynamics(x)), outcome[..., :-1], outcome[..., -1]

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return the logits of actions, and those of the value's bins."""
        both = self.prediction(z)
        return both[..., :-BINS], both[..., -BINS:]


class State(eqx.Module):
    """Everything that changes during training, and the bins."""

    nets: Nets
    target: Nets
    optimiser: optax.OptState
    range: Range
    bins: Bins
    config: Config
    sign: Float[Array, ""]  # of the value after a step: -1 if it is the opponent's


def needs(config: Config) -> Needs:
    """Ask for sequences that end with their episode, with what searches found."""
    rows = {"batch": config.batch, "updates": config.learn, "length": config.unroll}
    sums = {"n_step": config.n_step, "gamma": config.gamma, "add": ("one_step",)}
    feed = Feed(**rows, **sums, edge="mask")
    return Needs(config.collect, (feed,), config.capacity, config.warmup, ("search",))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raise Mistake for actions that are not discrete."""
    actions, n = supported_actions("muzero", spec.action, ("discrete",), ONLINE), config.width
    first, *keys = random_keys.split(key, "net", 5)
    encoder, z = Encoder.create(first, spec), 8 * config.groups
    both = z + actions.outputs
    outputs = (z, z, BINS + 1, actions.outputs + BINS)
    parts = zip(keys, (encoder.size, both, both, z), outputs, (1.0, 1.0, 0.0, 0.01), strict=True)
    made = [MLP.orthogonal(k, (i, n, n, o), "relu", s, layer_norm=True) for k, i, o, s in parts]
    nets = Nets(encoder, *made, actions)
    bins = Bins(make_support(-10.0, 10.0, BINS), SYMLOG)
    target, sign = jax.tree.map(jnp.copy, nets), jnp.asarray(-1.0 if spec.alternating else 1.0)
    return State(nets, target, adam().init(nets), Range.create(), bins, config, sign)


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return v of observations, to the side that moves."""
    return state.bins.mean(state.nets.predict(state.nets.represent(obs))[1])


def act(state: State, obs: Obs, key: Key[Array, ""], explore: bool) -> tuple[Action, dict]:
    """Return the action that a search found, with ``explore`` one with noise, and pi'."""
    c, nets, scale = state.config, state.nets, state.range.scale()
    z, logits, v, mask = root(state, obs)

    def advance(_: Any, key: Key[Array, ""], action: Array, z: Array) -> tuple[Any, Array]:
        z, reward, goes_on = nets.step(z, action)
        logits, v = nets.predict(z)
        paid = {"reward": state.bins.mean(reward) / scale, "value": state.bins.mean(v) / scale}
        discount = state.sign * c.gamma * jax.nn.sigmoid(goes_on)
        return mctx.RecurrentFnOutput(discount=discount, prior_logits=logits, **paid), z

    first = mctx.RootFnOutput(prior_logits=logits, value=v / scale, embedding=z)
    how = {"num_simulations": c.simulations, "max_num_considered_actions": c.considered}
    how |= {"invalid_actions": (~mask).astype(jnp.float32), "gumbel_scale": float(explore)}
    how["qtransform"] = partial(mctx.qtransform_completed_by_mix_value, rescale_values=False)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = mctx.gumbel_muzero_policy((), key, first, advance, **how)
    return found.action, {"search": found.action_weights}


def prior(state: State, obs: Obs, key: Key[Array, ""], explore: bool) -> tuple[Action, dict]:
    """Return the policy's action without a search, and its probabilities."""
    _, logits, _, mask = root(state, obs)
    pi = state.nets.actions.distribution(logits, mask)
    return pi.sample(key) if explore else pi.mode(), {"search": jax.nn.softmax(pi.logits)}


def root(state: State, obs: Obs) -> tuple[Array, Array, Array, Array]:
    """Return z, logits, v and which actions are allowed."""
    z = state.nets.represent(obs)
    logits, v = state.nets.predict(z)
    mask = action_mask(obs, state.nets.actions.sizes)
    return z, logits, state.bins.mean(v), jnp.ones_like(logits, bool) if mask is None else mask


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on sequences ``(batch, time, ...)``."""
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch)
    ahead = value(eqx.tree_at(lambda s: s.nets, state, state.target), rows.next_obs)
    y = rows.reward + state.config.gamma * rows.discount * ahead
    grads, metrics = jax.grad(loss, has_aux=True)(state.nets, state, rows, y)
    direction, optimiser = adam(max_norm=5.0).update(grads, state.optimiser)
    nets = descend(state.nets, direction, state.config.lr)
    target = polyak(state.target, nets, state.config.tau)
    values = state.range.update(y, rows.mask, state.config.tau)
    metrics |= {"value/target": masked_mean(y, rows.mask), "value/range": values.scale()}
    after = State(nets, target, optimiser, values, state.bins, state.config, state.sign)
    return after, Signals(metrics)


def loss(nets: Nets, state: State, rows: Record, y: Array) -> tuple[Array, dict[str, Array]]:
    """Return L of rows ``(time, batch, ...)``, and its parts."""

    def step(z: Array, action: Array) -> tuple[Array, tuple[Array, ...]]:
        after, reward, goes_on = nets.step(z, action)
        return 0.5 * (after + jax.lax.stop_gradient(after)), (z, reward, goes_on)

    start = nets.represent(jax.tree.map(lambda x: x[0], rows.obs))
    _, (z, reward, goes_on) = jax.lax.scan(step, start, rows.action)
    (logits, v), on = nets.predict(z), jnp.abs(rows.extras["discount_now"])
    each = {
        "loss/policy": cross_entropy(rows.extras["search"], logits),
        "loss/value": state.bins.loss(v, y),
        "loss/reward": state.bins.loss(reward, rows.extras["reward_now"]),
        "loss/end": optax.sigmoid_binary_cross_entropy(goes_on, on),
    }
    means = {name: masked_mean(x, rows.mask) for name, x in each.items()}
    return sum(means.values()), means
