"""Flow Q-learning (Park 2025, arXiv:2502.02538), for boxes.

    flow       L_v  = E[ |v(s, t, x_t) - (a - z)|^2 ],       x_t = (1 - t) z + t a
    target     y    = r + g agg_i Q'_i(s', mu(s', z'))
    critics    L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    policy     L_mu = alpha E[ |mu(s, z) - x_1(s, z)|^2 ] - lambda E[ mean_i Q_i(s, mu(s, z)) ]

z is standard normal, t uniform in [0, 1], |.|^2 a mean over the numbers of an action. x_1(s, z) is
where the flow v carries z in ``flow_steps`` Euler steps: a sample of the log's policy, of any
shape. The policy mu goes there in one step and is bent towards higher values; no gradient passes
through the flow. agg is the mean or the smaller (``q_agg``); lambda is 1, or with ``normalise_q``
1 / E|Q|; g is gamma times the world's discount; Q' follows Q by ``tau`` per update; w is 1, or an
importance weight of the source. Actions are mu(s, z) of fresh z, also where nothing is explored.

Deviations from the authors' code: critics have ReLU for GELU, U(-1/sqrt(inputs), 1/sqrt(inputs))
for Glorot's weights, and layers normalised before and not after the activation; the policy's loss
uses the critics after their step; pictures are encoded by one torso, which only the critics' loss
trains.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.algorithms.online import sac
from sterling.equations.average import masked_mean
from sterling.equations.flow import between, euler, flow_matching_loss
from sterling.equations.polyak import polyak
from sterling.equations.value import td_target
from sterling.field_types import Count, Depth, NotNegative, Share, Whole
from sterling.nets.encoder import Encoder
from sterling.nets.ensemble import Twins
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

DRAWS = 8  # noises over which a value is averaged


@config
class Config:
    """Defaults are the paper's (its table 5 and github.com/seohongpark/fql)."""

    lr: NotNegative = 3e-4  # Adam's step size, for flow, policy and critics
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that target critics move per update
    alpha: NotNegative = 10.0  # weight of staying near the flow, in the return's units (3..30000)
    flow_steps: Count = 10  # Euler steps of the flow
    q_agg: str = "mean"  # of the two target critics; "min" where data is narrow
    normalise_q: bool = False  # values in units of their mean size, in the policy's loss
    layer_norm: bool = True  # normalise the critics' hidden layers
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 512  # units per hidden layer
    depth: Depth = 4  # hidden layers, for vectors (after convolutions: one)


class Actors(eqx.Module):
    """The log's policy as a flow, and the one-step policy."""

    velocity: MLP
    one_step: MLP
    actions: Actions = eqx.field(static=True)

    def flow(
        self,
        features: Float[Array, "... features"],
        x: Float[Array, "... n"],
        time: Float[Array, "... 1"],
    ) -> Float[Array, "... n"]:
        """v(s, t, x)."""
        return self.velocity(jnp.concatenate([features, x, time], -1))

    def policy(
        self, features: Float[Array, "... features"], noise: Float[Array, "... n"]
    ) -> Float[Array, "... n"]:
        """mu(s, z), which may lie outside of the space."""
        return self.one_step(jnp.concatenate([features, noise], -1))


class State(eqx.Module):
    """Everything that changes; the torso of pictures is the critics' and they alone train it."""

    actors: Actors
    critics: Twins
    target: Twins
    optimisers: tuple[optax.OptState, optax.OptState]  # actors, critics
    normaliser: ObsNormaliser
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform samples."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are not a box and for an unknown
    ``q_agg``."""
    if not isinstance(spec.action, spaces.Box):
        others = "iql or cql" if isinstance(spec.action, spaces.Discrete) else "bc"
        raise Mistake(f"fql cannot act in {spec.action}; use {others}")
    if config.q_agg not in ("mean", "min"):
        raise Mistake(f"q_agg {config.q_agg!r} is not known to fql; use mean or min")
    actions = Actions.of(spec.action)
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    size = actions.outputs
    velocity = MLP.glorot(
        keys.fold(key, "velocity"), (torso.size + size + 1, *hidden, size), "gelu"
    )
    one_step = MLP.glorot(keys.fold(key, "policy"), (torso.size + size, *hidden, size), "gelu")
    actors = Actors(velocity, one_step, actions)
    critics = Twins.create(
        keys.fold(key, "critics"), torso, hidden, size, layer_norm=config.layer_norm
    )
    return State(
        actors,
        critics,
        jax.tree.map(jnp.copy, critics),
        (adam().init(actors), adam().init(critics)),
        ObsNormaliser.of_log(spec, config.normalise_obs),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the one-step policy, exploring or not."""
    action = sample(state.actors, state.critics.torso(state.normaliser(obs)), key)
    return state.actors.actions.shaped(action), {}


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The critics' value of the policy's actions, averaged over a few noises, always the same."""
    features = state.critics.torso(state.normaliser(obs))

    def each(key: Key[Array, ""]) -> Float[Array, "env"]:
        values = state.critics.of_features(features, sample(state.actors, features, key))
        return aggregated(values, state.config.q_agg)

    return jnp.mean(jax.vmap(each)(keys.deal(jax.random.key(0), "value", DRAWS)), 0)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The critics' value of actions, as ``q_agg`` says."""
    values = sac.logged(state.critics, state.normaliser(obs), action)
    return aggregated(values, state.config.q_agg)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of critics, flow, policy and targets on transitions ``(batch, ...)``."""
    config, (actor_state, critic_state) = state.config, state.optimisers
    normal = state.normaliser
    batch = normal.batch(batch)

    y = target(state, batch, keys.fold(key, "next"))
    grads, (metrics, error) = jax.grad(sac.critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    grads, actor_metrics = jax.grad(actor_loss, has_aux=True)(
        state.actors, critics, batch, config, keys.fold(key, "now")
    )
    direction, actor_state = adam().update(grads, actor_state)
    actors = descend(state.actors, direction, config.lr)

    slow = polyak(state.target, critics, config.tau)
    learned = State(actors, critics, slow, (actor_state, critic_state), normal, config)
    return learned, Signals({**metrics, **actor_metrics}, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """y of the module docstring."""
    config = state.config
    action = sample(state.actors, state.critics.torso(batch.next_obs), key)
    next_value = aggregated(state.target.of_action(batch.next_obs, action), config.q_agg)
    return td_target(batch.reward, config.gamma * batch.discount, next_value)


def actor_loss(
    actors: Actors, critics: Twins, batch: Record, config: Config, key: Key[Array, ""]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L_v + L_mu of the module docstring."""
    logged = actors.actions.flat(batch.action)
    features = critics.torso(batch.obs)
    starts, times, noises = keys.deal(key, "noise", 3)

    start = jax.random.normal(starts, logged.shape)
    time = jax.random.uniform(times, (*logged.shape[:-1], 1))
    velocity = actors.flow(features, between(start, logged, time), time)
    flow = masked_mean(flow_matching_loss(velocity, start, logged), batch.mask)

    noise = jax.random.normal(noises, logged.shape)
    reached = euler(lambda x, t: actors.flow(features, x, t), noise, config.flow_steps)
    reached = jax.lax.stop_gradient(jnp.clip(reached, -1.0, 1.0))
    action = actors.policy(features, noise)
    apart = masked_mean(jnp.mean(jnp.square(action - reached), -1), batch.mask)

    values = critics.of_features(features, jnp.clip(action, -1.0, 1.0))
    q = aggregated(values, "mean")
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask))
    worth = masked_mean(q, batch.mask) / (jnp.maximum(size, 1e-6) if config.normalise_q else 1.0)
    total = flow + config.alpha * apart - worth
    return total, {"loss/flow": flow, "loss/distillation": apart, "loss/policy": total}


def sample(
    actors: Actors, features: Float[Array, "... features"], key: Key[Array, ""]
) -> Float[Array, "... n"]:
    """mu(s, z) of fresh noise, within the space; flat."""
    noise = jax.random.normal(key, (*features.shape[:-1], actors.actions.outputs))
    return jnp.clip(actors.policy(features, noise), -1.0, 1.0)


def aggregated(
    values: tuple[Float[Array, "..."], Float[Array, "..."]], how: str
) -> Float[Array, "..."]:
    """The mean or the smaller of two values."""
    return jnp.minimum(*values) if how == "min" else 0.5 * (values[0] + values[1])
