"""Pareto conditioned networks (Reymond 2022, arXiv:2204.05036) classify actions by what is wanted.

    command    R, h: return wanted in each objective, more is better, in h steps;  R - r, h - 1 next
    loss       - log p(a_t | s_t, sum of r_k over k >= t, T - t)      over steps of stored episodes
    explores   R, h of stored episodes that none dominates, one objective raised by U(0, std)
    stores     the ``episodes`` nearest to the front, at twice the distance where it is crowded

Evaluated, it wants the best for the observed preference. Deviations: equal returns are stored once.
Three seeds reached a front of 398 [390, 406] of 401.8 on deep sea treasure (Yang 2019) by

    sterling train examples/methods/pcn.py examples/worlds/deep_sea_treasure.py:Sea --envs 64 \\
        --seeds 3 --steps 320_000 --evaluate-episodes 100
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from sterling import random_keys
from sterling.actor import Past
from sterling.envs.traced_world import tree_where
from sterling.equations.pareto import crowding, nondominated
from sterling.field_types import Count, NotNegative
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.types import Feed, Needs, Record, Signals, Spec, config

checked_in = {"environment": "probe:objectives"}


@config
class Config:
    """Numbers of the networks, of the stored episodes and of their updates."""

    lr: NotNegative = 1e-3  # Adam's step size
    episodes: Count = 128  # stored episodes
    limit: Count = 50  # steps after which an episode is stopped
    batch: Count = 256  # steps of stored episodes per update
    learn: Count = 20  # updates per iteration
    width: Count = 128  # units of each of the two hidden layers


class State(eqx.Module):
    """Everything that changes during training, and what the world says of its objectives."""

    stored: dict[str, PyTree]  # of each episode: obs, action, to_go; length (0: none), front
    learned: tuple[PyTree, PyTree]  # the networks (Encoder, MLP), and their optimiser
    better: Array  # 1 or -1, (1, objective)
    exploring: Array  # True in training alone
    config: Config
    actions: Actions = eqx.field(static=True)


def needs(config: Config) -> Needs:
    """Ask for whole episodes with their steps, after every ``limit`` steps."""
    return Needs(config.limit, (Feed("episodes", add=("steps",)),))


def init(key: Array, spec: Spec, config: Config) -> State:
    """Create an agent without stored episodes; actions must be choices."""
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    shape = config.episodes, config.limit
    actions = supported_actions("pcn", spec.action, ("discrete", "multi"), ONLINE)
    better = jnp.asarray(spec.channels["objectives"].directions, jnp.float32)[None]
    sizes = (torso.size + better.size + 1, config.width, config.width, actions.outputs)
    nets = torso, MLP.orthogonal(random_keys.fold(key, "head"), sizes, "relu", 0.01)
    obs = jax.tree.map(lambda x: jnp.zeros((*shape, *jnp.shape(x)), x.dtype), spec.obs.sample())
    stored = {"obs": obs, "action": actions.nothing(shape), "front": jnp.zeros(shape[0], bool)}
    stored |= {"to_go": jnp.zeros((*shape, better.size)), "length": jnp.zeros(shape[0], jnp.int32)}
    return State(stored, (nets, adam().init(nets)), better, jnp.asarray(False), config, actions)


def member(state: State, key: Array, env: Array) -> State:
    """Return the agent that explores; training acts with it, evaluation does not."""
    return eqx.tree_at(lambda state: state.exploring, state, jnp.asarray(True))


def memory(state: State, envs: int, key: Array) -> tuple[Array, Array]:
    """Draw a command for each env from the front: R ``(env, objective)`` and h ``(env,)``."""
    own, keys = state.stored, random_keys.split(key, "command", 3)
    which = jax.random.categorical(keys[0], jnp.where(own["front"], 0.0, -1e9), shape=(envs,))
    spread = jnp.std(own["to_go"][:, 0], 0, where=own["length"][:, None] > 0, keepdims=True)
    raised = jax.random.randint(keys[1], (envs,), 0, spread.size)
    more = jax.nn.one_hot(raised, spread.size) * spread * jax.random.uniform(keys[2], (envs, 1))
    return own["to_go"][which, 0] + jnp.nan_to_num(more), own["length"][which]


def recall(state: State, past: Past, obs: PyTree, key: Array, explore: bool) -> tuple:
    """Return actions, and the command less what the last step earned."""
    own, (wanted, steps) = state.stored, past.memory
    worth = jnp.where(own["front"], obs["preference"] @ own["to_go"][:, 0].T, -jnp.inf)
    best, fixed = jnp.argmax(worth, -1), past.first & ~state.exploring
    left = wanted - state.better * past.channels["objectives"], steps - jnp.int32(~past.first)
    wanted, steps = tree_where(fixed, (own["to_go"][best, 0], own["length"][best]), left)
    pi = policy(state, state.learned[0], obs, wanted, steps)
    return jnp.where(state.exploring, pi.sample(key), pi.mode()), (wanted, steps), {}


def policy(state: State, nets: tuple, obs: PyTree, wanted: Array, steps: Array) -> PyTree:
    """Return the distribution of actions for the return ``wanted`` in so many ``steps``."""
    most = jnp.abs(state.stored["to_go"]).max((0, 1))[None] + 1e-6
    left = jnp.maximum(steps, 1)[:, None].astype(jnp.float32) / state.config.limit
    return state.actions.distribution(nets[1](jnp.hstack([nets[0](obs), wanted / most, left])))


def best_of(every: dict[str, PyTree], count: int) -> dict[str, PyTree]:
    """Return the ``count`` episodes that are nearest to the front, without equal returns."""
    known, value = every["length"] > 0, every["to_go"][:, 0]
    front = nondominated(jnp.where(known[:, None], value, -jnp.inf)) & known
    apart = jnp.linalg.norm(value[:, None] - value[None], axis=-1)
    again = jnp.tril((apart == 0.0) & known[None], -1).any(1)
    far = jnp.where(front[None], apart, jnp.inf).min(1)
    far = jnp.where(crowding(value, known) <= 1 / 5, 2.0 * far, far)
    kept = jnp.argsort(jnp.where(known & ~again, far, jnp.inf))[:count]
    return jax.tree.map(lambda x: x[kept], every | {"front": front & ~again})


def learn(state: State, batch: Record, key: Array) -> tuple[State, Signals]:
    """Store the best of old and new episodes, then classify their actions."""
    steps, config = batch.beside["steps"], state.config
    played = steps.obs, steps.action, state.better[None] * steps.extras["objectives"]
    obs, action, gain = tree_where(steps.mask, played, jax.tree.map(jnp.zeros_like, played))
    length = jnp.where(steps.mask[:, 0], steps.mask.sum(1, dtype=jnp.int32), 0)  # 0: a crash
    new = {"obs": obs, "action": action, "to_go": jax.lax.cumsum(gain, 1, reverse=True)}
    new |= {"length": length, "front": length > 0}
    own = best_of(jax.tree.map(lambda *x: jnp.concatenate(x), state.stored, new), config.episodes)
    state = eqx.tree_at(lambda state: state.stored, state, own)
    parts, size = (own["obs"], own["action"], own["to_go"]), own["length"]

    def update(state: State, key: Array) -> tuple[State, Array]:
        (nets, optimiser), keys = state.learned, random_keys.split(key, "part", 2)
        row = jax.random.categorical(keys[0], jnp.where(size > 0, 0.0, -1e9), shape=(config.batch,))
        time = jax.random.randint(keys[1], row.shape, 0, jnp.maximum(size[row], 1))
        obs, action, wanted = jax.tree.map(lambda x: x[row, time], parts)

        def loss(nets: tuple[Encoder, MLP]) -> Array:
            return -policy(state, nets, obs, wanted, size[row] - time).log_prob(action).mean()

        value, grads = jax.value_and_grad(loss)(nets)
        direction, optimiser = adam().update(grads, optimiser)
        learned = descend(nets, direction, config.lr), optimiser
        return eqx.tree_at(lambda state: state.learned, state, learned), value

    state, losses = jax.lax.scan(update, state, random_keys.split(key, "update", config.learn))
    return state, Signals({"loss/action": losses.mean()})
