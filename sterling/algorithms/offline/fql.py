"""Flow Q-learning (Park 2025, arXiv:2502.02538), for Box actions.

    flow       L_v  = E[ |v(s, t, x_t) - (a - z)|^2 ],       x_t = (1 - t) z + t a
    target     y    = r + g agg_i Q'_i(s', mu(s', z'))
    critics    L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    policy     L_mu = alpha E[ |mu(s, z) - x_1(s, z)|^2 ] - lambda E[ mean_i Q_i(s, mu(s, z)) ]

z is standard normal, t uniform in [0, 1], |.|^2 a mean over the numbers of an action. x_1(s, z) is
where the flow v carries z in ``flow_steps`` Euler steps: a sample of the behaviour policy, which
may have any distribution. The policy mu imitates this in one step, shifted towards higher values;
no gradient passes through the flow. agg is the mean or the minimum (``q_agg``); lambda is 1, or
1 / E|Q| with ``normalise_q``; g is gamma times the environment's discount; Q' follows Q at rate
``tau`` per update; w is 1, or the source's importance weight. Actions are mu(s, z) of a new z, also
without exploration.

Deviations from the authors' code: critics have ReLU (there GELU), initial weights from
U(-1/sqrt(inputs), 1/sqrt(inputs)) (there Glorot's), and layers normalised before the activation
(there after it); the policy's loss uses the critics after their update; images are encoded by one
torso, which only the critics' loss trains.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations.flow_matching import flow_matching_loss, integrate_euler, interpolate
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import OFFLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import TwinCritics
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

VALUE_SAMPLES = 8  # samples over which a value is averaged


@config
class Config:
    """Defaults are the paper's (its table 5 and github.com/seohongpark/fql)."""

    lr: NotNegative = 3e-4  # Adam's step size, for flow, policy and critics
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    alpha: NotNegative = 10.0  # weight of staying near the flow, in units of return (3 to 30000)
    flow_steps: Count = 10  # Euler steps of the flow
    q_agg: str = "mean"  # mean or min of the two target critics; min for narrow data
    normalise_q: bool = False  # divide Q by its mean absolute value in the policy's loss
    layer_norm: bool = True  # normalise the critics' hidden layers
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 4  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "gelu"  # of flow and policy: tanh, relu, silu, elu or gelu


class Actors(eqx.Module):
    """The behaviour policy as a flow, and the one-step policy."""

    velocity: MLP
    one_step: MLP
    actions: Actions = eqx.field(static=True)

    def flow(
        self,
        features: Float[Array, "... features"],
        x: Float[Array, "... n"],
        time: Float[Array, "... 1"],
    ) -> Float[Array, "... n"]:
        """Return the velocity v(s, t, x)."""
        return self.velocity(jnp.concatenate([features, x, time], -1))

    def policy(
        self, features: Float[Array, "... features"], noise: Float[Array, "... n"]
    ) -> Float[Array, "... n"]:
        """Return mu(s, z), which may lie outside the action space."""
        return self.one_step(jnp.concatenate([features, noise], -1))


class State(eqx.Module):
    """Everything that changes during training. Only the critics' loss trains the image encoder."""

    actors: Actors
    critics: TwinCritics
    target: TwinCritics
    optimisers: tuple[optax.OptState, optax.OptState]  # actors, critics
    normaliser: ObsNormaliser
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box, and for an
    unknown ``q_agg``."""
    actions = supported_actions("fql", spec.action, ("box",), OFFLINE)
    if config.q_agg not in ("mean", "min"):
        raise Mistake(f"Unknown q_agg {config.q_agg!r} for fql. Use mean or min.")
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    size = actions.outputs
    velocity = MLP.glorot(
        random_keys.fold(key, "velocity"), (torso.size + size + 1, *hidden, size), config.activation
    )
    one_step = MLP.glorot(
        random_keys.fold(key, "policy"), (torso.size + size, *hidden, size), config.activation
    )
    actors = Actors(velocity, one_step, actions)
    critics = TwinCritics.create(
        random_keys.fold(key, "critics"), torso, hidden, size, layer_norm=config.layer_norm
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
    """Return a sample of the one-step policy, with or without ``explore``."""
    action = sample_action(state.actors, state.critics.torso(state.normaliser(obs)), key)
    return state.actors.actions.shaped(action), {}


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the critics' value of the policy's actions, averaged over fixed noise samples."""
    features = state.critics.torso(state.normaliser(obs))

    def each(key: Key[Array, ""]) -> Float[Array, "env"]:
        values = state.critics.q_from_features(features, sample_action(state.actors, features, key))
        return aggregate_q(values, state.config.q_agg)

    return jnp.mean(jax.vmap(each)(random_keys.split(jax.random.key(0), "value", VALUE_SAMPLES)), 0)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return the critics' value of actions, aggregated by ``q_agg``."""
    values = sac.q_values(state.critics, state.normaliser(obs), action)
    return aggregate_q(values, state.config.q_agg)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critics, flow, policy and targets once on transitions ``(batch, ...)``."""
    config, (actor_state, critic_state) = state.config, state.optimisers
    normaliser = state.normaliser
    batch = normaliser.batch(batch)

    y = target(state, batch, random_keys.fold(key, "next"))
    grads, (metrics, error) = jax.grad(sac.critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    grads, actor_metrics = jax.grad(actor_loss, has_aux=True)(
        state.actors, critics, batch, config, random_keys.fold(key, "now")
    )
    direction, actor_state = adam().update(grads, actor_state)
    actors = descend(state.actors, direction, config.lr)

    target_critics = polyak(state.target, critics, config.tau)
    learned = State(
        actors, critics, target_critics, (actor_state, critic_state), normaliser, config
    )
    return learned, Signals({**metrics, **actor_metrics}, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    config = state.config
    action = sample_action(state.actors, state.critics.torso(batch.next_obs), key)
    next_value = aggregate_q(state.target.q_values(batch.next_obs, action), config.q_agg)
    return td_target(batch.reward, config.gamma * batch.discount, next_value)


def actor_loss(
    actors: Actors, critics: TwinCritics, batch: Record, config: Config, key: Key[Array, ""]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_v + L_mu of the module docstring, and metrics."""
    logged = actors.actions.flat(batch.action)
    features = critics.torso(batch.obs)
    starts, times, noises = random_keys.split(key, "noise", 3)

    start = jax.random.normal(starts, logged.shape)
    time = jax.random.uniform(times, (*logged.shape[:-1], 1))
    velocity = actors.flow(features, interpolate(start, logged, time), time)
    flow = masked_mean(flow_matching_loss(velocity, start, logged), batch.mask)

    noise = jax.random.normal(noises, logged.shape)
    flow_action = integrate_euler(
        lambda x, t: actors.flow(features, x, t), noise, config.flow_steps
    )
    flow_action = jax.lax.stop_gradient(jnp.clip(flow_action, -1.0, 1.0))
    action = actors.policy(features, noise)
    distillation = masked_mean(jnp.mean(jnp.square(action - flow_action), -1), batch.mask)

    values = critics.q_from_features(features, jnp.clip(action, -1.0, 1.0))
    q = aggregate_q(values, "mean")
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask))
    mean_value = masked_mean(q, batch.mask) / (
        jnp.maximum(size, 1e-6) if config.normalise_q else 1.0
    )
    total = flow + config.alpha * distillation - mean_value
    return total, {"loss/flow": flow, "loss/distillation": distillation, "loss/policy": total}


def sample_action(
    actors: Actors, features: Float[Array, "... features"], key: Key[Array, ""]
) -> Float[Array, "... n"]:
    """Return flat actions mu(s, z) of new noise z, clipped to the action space."""
    noise = jax.random.normal(key, (*features.shape[:-1], actors.actions.outputs))
    return jnp.clip(actors.policy(features, noise), -1.0, 1.0)


def aggregate_q(
    values: tuple[Float[Array, "..."], Float[Array, "..."]], how: str
) -> Float[Array, "..."]:
    """Return the mean or the minimum ("min") of two values."""
    return jnp.minimum(*values) if how == "min" else 0.5 * (values[0] + values[1])
