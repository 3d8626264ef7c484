"""Self-predictive representations (Schwarzer 2021, arXiv:2007.05929): Rainbow whose latents predict
those to come, for one choice among several.

    latent      z_t   = u(f(s_t)),   u(x) = (x - min x) / (max x - min x)
    model       z^_t = z_t,   z^_t+k = h(z^_t+k-1, a_t+k-1),   k = 1 ... K            (section 2.2)
    prediction  y^_t+k = q(g(z^_t+k)),   y~_t+k = g'(z'_t+k)
    agreement   C     = sum_k c_k cos(y^_t+k, y~_t+k)                                 (eq. 1)
    loss        L     = L_rainbow - coef E[ w C ]                                     (eq. 2)

L_rainbow, the noisy dueling streams of atoms and the behaviour are rainbow's, read from z. h is two
layers (convolutions, where z is a picture) that also see a as one-hot planes; g is the first layer
of both streams, by mean weights; q is linear. z' and g' belong to the target network, which with
``tau`` = 1 is the network itself (the paper's choice where pictures are augmented). c_k is 1 while
the steps t ... t + k are of one episode, else 0. Pictures are shifted by up to ``shift`` pixels,
then brightened (equations/picture_augmentation.py), each observation by a draw of its own. Of
vectors f is the first hidden layer, and nothing is augmented.

Deviations from the paper: h has no batch normalisation, as in the authors' later code (bbf); the
exponent b of the importance weights is constant (the paper anneals it from 0.4 to 1); time limits
bootstrap from the true successor; evaluation is without noise. Dropout, the paper's remedy where
nothing is augmented, is left out.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
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
from sterling.algorithms.online import dqn
from sterling.algorithms.q_learning import c51, rainbow
from sterling.equations.latent_prediction import cosine_similarity
from sterling.equations.masked_average import masked_mean
from sterling.equations.picture_augmentation import (
    Brighten,
    InTurn,
    OnPictures,
    Shift,
    picture_layouts,
)
from sterling.equations.value_losses import outputs_of_action
from sterling.field_types import Count, NotNegative, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, global_norm
from sterling.nets.special_layers.latent_transition import LatentTransition, unit_range
from sterling.nets.special_layers.noisy_linear import NoisyMLP
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, config


@config
class Config(rainbow.Config):
    """Defaults are those of the paper for 100,000 steps of Atari games (table 3), with 4 frames to
    a step."""

    lr = 1e-4  # Adam's initial step size
    n_step = 10  # rewards summed before bootstrapping
    collect = 1  # steps of each env per iteration
    learn = 2  # updates per iteration
    warmup = 2_000  # steps with random actions before the first update
    target_period = 1  # updates between changes of the target network
    max_grad_norm = 10.0  # gradients are clipped to this global norm
    width = 256  # units per hidden layer of each stream, or of each layer such as 400,300
    prediction_steps: Count = 5  # K: steps ahead for which latents are predicted
    prediction_coef: NotNegative = 2.0  # weight of the predictions in the loss
    shift: Whole = 4  # pixels by which pictures are shifted at most; 0: no augmentation


class SPRNetwork(eqx.Module):
    """Rainbow's streams, on latents that a model predicts."""

    torso: Encoder
    psi: MLP | None  # the first hidden layer; None: the latent is made of the encoder's features
    value: NoisyMLP
    advantage: NoisyMLP  # of the first action's atoms, then of the second's ...
    transition: LatentTransition  # h
    predictor: MLP  # q
    actions: Actions = eqx.field(static=True)

    def latent(self, obs: Obs) -> Float[Array, "... latent"]:
        """Return z."""
        features = self.torso(obs)
        return unit_range(features if self.psi is None else self.psi(features))

    def __call__(
        self, obs: Obs, key: Key[Array, ""] | None = None, shared: bool = True
    ) -> Float[Array, "... actions atom"]:
        """Return the logits of every action, with noise from ``key``: see NoisyMLP."""
        return self.logits(self.latent(obs), key, shared)

    def logits(
        self, latent: Float[Array, "... latent"], key: Key[Array, ""] | None, shared: bool = True
    ) -> Float[Array, "... actions atom"]:
        """Return the logits of every action, given z."""
        return rainbow.noisy_logits(self, latent, key, shared)

    def project(self, latent: Float[Array, "... latent"]) -> Float[Array, "... units"]:
        """Return g(z)."""
        streams = (self.value, self.advantage)
        return jnp.concatenate([stream.mean.layers[0](latent) for stream in streams], -1)


class State(eqx.Module):
    """Everything that changes during training."""

    net: SPRNetwork
    target: SPRNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config
    augment: OnPictures | None = eqx.field(static=True)


def needs(config: Config) -> Needs:
    """Ask for stretches of K + 1 rows from a prioritised replay buffer, with sums of ``n_step``
    rewards."""
    return stretches(config, config.n_step)


def stretches(config: Any, n_step: int) -> Needs:
    """Return the needs of a Config with the fields of this one, with sums of ``n_step`` rewards."""
    feed = Feed(
        batch=config.batch,
        updates=config.learn,
        length=1 + config.prediction_steps,
        n_step=n_step,
        gamma=float(config.gamma) if n_step > 1 else 1.0,
        priority=config.priority or 0.0,
        correction=float(config.correction) if config.priority else 1.0,
    )
    return Needs(config.collect, (feed,), config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice, and for atoms
    that are no interval."""
    actions = supported_actions("spr", spec.action, ("discrete",), ONLINE)
    c51.check_support(config)
    torso, psi, sizes = latent_parts(key, spec, config)

    def stream(name: str, outputs: int) -> NoisyMLP:
        own_key, norm = random_keys.fold(key, name), config.layer_norm
        return NoisyMLP.create(
            own_key, (*sizes, outputs), config.sigma, config.activation, layer_norm=norm
        )

    streams = stream("value", config.atoms), stream("advantage", actions.outputs * config.atoms)
    transition_key, predictor_key = (random_keys.fold(key, x) for x in ("transition", "predictor"))
    grid = None if psi is not None else torso.grid
    transition = LatentTransition.create(transition_key, sizes[0], actions.outputs, grid)
    units = sum(each.mean.layers[0].weight.shape[1] for each in streams)
    predictor = MLP.uniform(predictor_key, (units, units))
    net = SPRNetwork(torso, psi, *streams, transition, predictor, actions)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
        augmentation(spec, config.shift),
    )


def latent_parts(
    key: Key[Array, ""], spec: Spec, config: Any
) -> tuple[Encoder, MLP | None, tuple[int, ...]]:
    """Return the encoder, the first hidden layer (of vectors), and the sizes of z and of the hidden
    layers behind it."""
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth))
    if not torso.is_flat or len(sizes) < 2:
        return torso, None, sizes
    psi = MLP.uniform(random_keys.fold(key, "psi"), sizes[:2], config.activation, True)
    return torso, psi, sizes[1:]


def augmentation(spec: Spec, shift: int) -> OnPictures | None:
    """Return how pictures are changed; None if there are none, or ``shift`` is 0."""
    layouts = picture_layouts(spec)
    change = InTurn((Shift(shift), Brighten()))
    return OnPictures(change, layouts) if shift and any(layouts) else None


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action by mean weights; with ``explore`` by weights with noise, which is
    independent in each environment."""
    return rainbow.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the policy by mean weights: 0 for the best action, -inf for others."""
    return rainbow.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a) by mean weights, the expected return of the greedy policy."""
    return rainbow.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on stretches ``(batch, time, ...)``."""
    grads, metrics, divergence = gradients(state, batch, key, state.config)
    learned = dqn.descend_q(state, grads, state.config.adam_eps)
    metrics["loss/grad_norm"] = global_norm(grads)
    return learned, Signals(metrics, {"td_error": divergence})


def gradients(
    state: Any, batch: Record, key: Key[Array, ""], config: Any
) -> tuple[Any, dict[str, Array], Float[Array, "batch"]]:
    """Return the gradients of L, metrics, and KL(m || p) of each stretch. ``state``: of any
    algorithm whose networks have the methods of SPRNetwork; ``config``: with the current gamma."""
    if state.augment is not None:
        batch = state.augment.on_each_row(batch, random_keys.fold(key, "augment"))
    first = jax.tree.map(lambda x: x[:, 0], dataclasses.replace(batch, extras={}))
    first = dataclasses.replace(first, extras=batch.extras)
    following = state.target(first.next_obs, random_keys.fold(key, "next"))
    chooser = state.net(first.next_obs, random_keys.fold(key, "choice"))
    m = c51.targets(following, c51.q_values(chooser, config), first, config)
    ahead = jax.tree.map(lambda x: x[:, 1:], batch.obs)
    goals = state.target.project(state.target.latent(ahead))
    counts = jnp.cumprod(batch.mask, 1)[:, 1:].astype(goals.dtype)

    def loss(net: Any) -> tuple[Float[Array, ""], tuple[dict[str, Array], Array]]:
        latent = net.latent(first.obs)
        logits = outputs_of_action(net.logits(latent, random_keys.fold(key, "now")), first.action)
        total, (metrics, divergence) = c51.distribution_loss(logits, first, m, config)
        found = predictions(net, latent, batch.action[:, :-1])
        agreement = jnp.sum(counts * cosine_similarity(found, goals), 1)
        weight = batch.extras.get("weight", jnp.ones_like(agreement))
        prediction = -masked_mean(weight * agreement, first.mask)
        metrics["loss/prediction"] = prediction
        return total + config.prediction_coef * prediction, (metrics, divergence)

    grads, (metrics, divergence) = jax.grad(loss, has_aux=True)(state.net)
    return grads, metrics, divergence


def predictions(
    net: Any, latent: Float[Array, "batch latent"], action: Int[Array, "batch step"]
) -> Float[Array, "batch step units"]:
    """Return y^ of the steps ahead, of which ``action`` are those before."""

    def step(z: Array, a: Array) -> tuple[Array, Array]:
        z = net.transition(z, a)
        return z, net.predictor(net.project(z))

    return jnp.swapaxes(jax.lax.scan(step, latent, action.T)[1], 0, 1)
