"""DrQ-v2: DDPG from pictures that are randomly shifted (Yarats 2021, arXiv:2107.09645).

    features    h     = f(aug(s)),   h' = f(aug(s'))                  f: the encoder, aug: a shift
    actions     a'    = clip(mu(h') + clip(e, -c, c), -1, 1),         e ~ N(0, sigma_t^2)
    target      y     = sum_{k<n} gamma^k r_{t+k} + g min_i Q'_i(h', a')               (eq. 1)
    critics     L_Q   = sum_i E[ w (Q_i(h, a) - y)^2 ]                            (trains f too)
    actor       L_mu  = -E[ min_i Q_i(h, clip(mu(h) + clip(e, -c, c), -1, 1)) ]        (eq. 2)
    behaviour   a     = clip(mu(f(s)) + e, -1, 1),                    e ~ N(0, sigma_t^2)
    noise       sigma_t = sigma_0 + (1 - max(1 - t / T, 0)) (sigma_1 - sigma_0)        (eq. 3)

s' is the observation after n steps, g is gamma^n times the environment's discount. aug shifts each
picture by up to ``shift`` pixels, with edges repeated, s and s' by draws of their own
(equations/picture_augmentation.py); vectors are not changed. Each network of mu and Q begins with a
trunk of its own: a linear layer to ``features`` numbers, layer norm and tanh. Q'_i, trunk included,
follow Q_i at rate ``tau``; f and mu have no targets. The gradient passes the clip of the actor's
action as if there were none. w is 1, or prioritised replay's importance weight.

Deviations from the paper: t is counted in updates, and T is a share of the run's; shifted pictures
of bytes are rounded to bytes; pictures with sides below 15 have one convolution. Shifts have
fractions of pixels where the authors' code draws whole ones, as is done here without ``subpixel``.
The paper repeats every action twice and stacks three frames (``--env stack=3``).
Evidence: none at published scale yet; benchmarks/results/pixels.md, probe worlds, an oracle.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.equations.masked_average import masked_mean
from sterling.equations.picture_augmentation import OnPictures, Shift, picture_layouts
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole, Width
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.convolution import SHORTEST_DRQ_SIDE
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.mlp import MLP, hidden_sizes
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.feature_trunk import Trunk, TrunkCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics


@config
class Config:
    """Defaults are those of the paper (table 1), for its tasks of medium difficulty."""

    lr: NotNegative = 1e-4  # Adam's step size, for encoder, critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.01  # rate at which target critics follow, per update
    noise_initial: NotNegative = 1.0  # sigma_0: initial standard deviation of the noise on actions
    noise_final: NotNegative = 0.1  # sigma_1: final standard deviation of the noise on actions
    noise_fraction: Share = 0.32  # T: share of the planned updates over which the noise changes
    noise_clip: Width = 0.3  # c: bound of the noise on actions that are learned from
    shift: Whole = 4  # pixels by which pictures are shifted at most; 0: no augmentation
    subpixel: bool = True  # shift by fractions of pixels too
    batch: Count = 256  # transitions per update
    collect: Count = 2  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 2_000  # steps with random actions before the first update
    n_step: Count = 3  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    features: Count = 50  # numbers to which each network's trunk reduces the encoder's features
    width: Sizes = 1024  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers after the trunk
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class Actor(eqx.Module):
    """mu(h); flat, in (-1, 1)."""

    trunk: Trunk
    net: MLP
    actions: Actions = eqx.field(static=True)

    def __call__(self, features: Float[Array, "... features"]) -> Float[Array, "... n"]:
        """Return tanh of the network's output."""
        return jnp.tanh(self.net(self.trunk(features)))


class Nets(eqx.Module):
    """Encoder, actor and critics."""

    encoder: Encoder
    actor: Actor
    critics: TrunkCritics


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: TrunkCritics
    critic_optimiser: optax.OptState  # of encoder and critics
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config
    augment: OnPictures = eqx.field(static=True)


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    actions = supported_actions("drq-v2", spec.action, ("box",), ONLINE)
    layouts = picture_layouts(spec)
    sides = [min(layout.height, layout.width) for layout in layouts if layout]
    if not spec.encoder and sides and min(sides) >= SHORTEST_DRQ_SIDE:
        spec = dataclasses.replace(spec, encoder="drq")
    encoder = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = hidden_sizes(config.width, config.depth)

    def part(name: str, inputs: int, outputs: int, norm: bool) -> MLP:
        sizes, kind = (config.features + inputs, *hidden, outputs), config.activation
        own_key = random_keys.fold(key, name)
        return MLP.orthogonal(own_key, sizes, kind, layer_norm=norm, scale=1.0)

    trunk, own = (
        Trunk.create(random_keys.fold(key, name), encoder, config.features)
        for name in ("critic trunk", "actor trunk")
    )
    own = dataclasses.replace(own, layer=without_unseen_features(own.layer, encoder, spec))
    actor = Actor(own, part("actor", 0, actions.outputs, False), actions)
    both = (part(name, actions.outputs, 1, config.layer_norm) for name in ("first", "second"))
    critics = TrunkCritics(trunk, *both)
    return State(
        Nets(encoder, actor, critics),
        jax.tree.map(jnp.copy, critics),
        adam().init((encoder, critics)),
        adam().init(actor),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
        OnPictures(Shift(config.shift, config.subpixel), layouts),
    )


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds."""
    action = state.nets.actor(state.nets.encoder(obs))
    if explore:
        action = action + noise_scale(state) * jax.random.normal(key, action.shape)
    return state.nets.actor.actions.shaped(jnp.clip(action, -1.0, 1.0)), {}


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    features = state.nets.encoder(obs)
    return jnp.min(state.nets.critics(features, state.nets.actor(features)), 0)


def action_value(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    flat = state.nets.actor.actions.flat(action)
    return jnp.min(state.nets.critics(state.nets.encoder(obs), flat), 0)


def learn(state: Any, batch: Record, key: Key[Array, ""]) -> tuple[Any, Signals]:
    """Update encoder, critics, actor and target once on transitions ``(batch, ...)``."""
    nets, lr = state.nets, state.config.lr
    shift_key, next_key, now_key = (random_keys.fold(key, x) for x in ("shift", "next", "now"))
    batch = state.augment(batch, shift_key) if state.config.shift else batch
    y = target(state, batch, next_key)
    grad = jax.grad(critic_loss, has_aux=True)
    grads, (features, metrics, error) = grad((nets.encoder, nets.critics), batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    encoder, critics = descend((nets.encoder, nets.critics), direction, lr)
    noise = clipped_noise(state, now_key, batch)
    loss, grads = jax.value_and_grad(actor_loss)(nets.actor, critics, features, noise, batch)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    learned = dataclasses.replace(
        state,
        nets=Nets(encoder, descend(nets.actor, direction, lr), critics),
        target=polyak(state.target, critics, state.config.tau),
        critic_optimiser=critic_optimiser,
        actor_optimiser=actor_optimiser,
        updates=state.updates + 1,
    )
    metrics |= {"loss/policy": loss, "policy/noise": noise_scale(state)}
    return learned, Signals(metrics, {"td_error": error})


def target(state: Any, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    features = state.nets.encoder(batch.next_obs)
    action = state.nets.actor(features) + clipped_noise(state, key, batch)
    values = state.target(features, jnp.clip(action, -1.0, 1.0))
    return td_target(batch.reward, state.config.gamma * batch.discount, jnp.min(values, 0))


def critic_loss(
    nets: tuple[Encoder, TrunkCritics], batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[Array, dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, the features h, metrics, and |TD error| per row (mean
    over critics)."""
    encoder, critics = nets
    features, action = encoder(batch.obs), batch.action.reshape(len(y), -1)
    q = critics(features, action)
    weight = batch.extras.get("weight", jnp.ones_like(y))
    loss = masked_mean(weight * jnp.sum(jnp.square(q - y[None]), 0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(q[0], batch.mask)}
    return loss, (features, metrics, jnp.mean(jnp.abs(q - y[None]), 0))


def actor_loss(
    actor: Actor,
    critics: TrunkCritics,
    features: Float[Array, "batch features"],
    noise: Float[Array, "batch n"],
    batch: Record,
) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    action = actor(features) + noise
    clipped = action + jax.lax.stop_gradient(jnp.clip(action, -1.0, 1.0) - action)
    return -masked_mean(jnp.min(critics(features, clipped), 0), batch.mask)


def clipped_noise(state: Any, key: Key[Array, ""], batch: Record) -> Float[Array, "batch n"]:
    """Return clip(e, -c, c) of the module docstring."""
    shape = (batch.mask.size, state.nets.actor.actions.outputs)
    noise = noise_scale(state) * jax.random.normal(key, shape)
    return jnp.clip(noise, -state.config.noise_clip, state.config.noise_clip)


def noise_scale(state: Any) -> Float[Array, ""]:
    """Return sigma_t, annealed linearly."""
    config = state.config
    over = jnp.maximum(config.noise_fraction * state.planned, 1.0)
    progress = jnp.minimum(state.updates.astype(jnp.float32) / over, 1.0)
    return config.noise_initial + progress * (config.noise_final - config.noise_initial)
