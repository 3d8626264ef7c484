"""PEARL (Rakelly 2019, arXiv:1903.08254): off-policy meta-learning by a belief over tasks.

    belief    q(z|c) = N(z; 0, I) prod_n N(z; f(c_n)),      c_n = (s, a, r, s') of one task
    critics   SAC's loss on (s, z), and KL(q(z|c) || N(0, I)) times ``divergence``; both train f
    actor     SAC's loss on (s, z), where z is constant

Every row of a batch brings ``context_rows`` rows of its task, told apart by ``task``, the name of
a channel of the world. z is drawn at the beginning of an episode: from the prior, or after
adaptation from the belief about the level. Deviations: the prior is a factor too; each row has a
context of its own; contexts are of the whole replay, not of its newest rows; the rows to adapt to
are collected with z of the prior. Reached: 0.719 [0.648, 0.789] after adaptation and 0.477 [0.339,
0.616] before (3 seeds; 0.75 is best with the task known, 0.6 without).

    sterling train examples/methods/pearl.py probe:levels-hidden-continuous --steps 10_000 \
        --warmup 500 --width 64 --batch 64
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.algorithms.online import sac
from sterling.equations.gaussian_posterior import GaussianPosterior
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Count, NotNegative
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Beside, Needs, Obs, Record, SameTask, Signals, Spec, config

checked_in = {"environment": "probe:levels-hidden-continuous"}  # a world with tasks


@config
class Config(sac.Config):
    """SAC's fields, and those of the belief."""

    task: str = "begun"  # channel that tells tasks apart
    context_rows: Count = 16  # rows of its task beside each row
    latent: Count = 4  # size of z
    divergence: NotNegative = 1e-3  # weight of the divergence from the prior; the paper's 0.1 suits
    # rewards of about 10: where the critics' loss is smaller than the divergence, z says nothing
    adapt_length: Count = 30  # steps to adapt to


class State(eqx.Module):
    """Everything that changes during training, and the belief about the present task."""

    policy: sac.State
    encoder: MLP
    optimiser: optax.OptState
    belief: GaussianPosterior

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Ask for SAC's rows of the replay, each with rows of its task; evaluations adapt."""
    asked = sac.needs(config)
    beside = (Beside("context", SameTask(config.context_rows, config.task)),)
    feed = dataclasses.replace(asked.feeds[0], beside=beside)
    rest = {"warmup": asked.warmup, "adapt": config.adapt_length}
    return Needs(asked.collect, (feed,), asked.capacity, **rest)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent; observations and actions must be vectors."""
    (size,), (acts,) = spec.obs.shape, spec.action.shape
    wide = spaces.Box(-np.inf, np.inf, (size + config.latent,), np.float32)
    policy = sac.init(key, dataclasses.replace(spec, obs=wide), config)
    sizes = (2 * size + acts + 1, config.width, config.width, 2 * config.latent)
    encoder = MLP.uniform(random_keys.fold(key, "encoder"), sizes, "relu")
    return State(policy, encoder, adam().init(encoder), GaussianPosterior.prior(config.latent))


def belief_from(encoder: MLP, rows: Record) -> GaussianPosterior:
    """Return the belief about the task of rows ``(..., row)``."""
    parts = (rows.obs, rows.action, rows.reward[..., None], rows.next_obs)
    mean, spread = jnp.split(encoder(jnp.concatenate(parts, -1)), 2, -1)
    return GaussianPosterior.product(mean, jax.nn.softplus(spread) + 1e-3, rows.mask)


def adapt(state: State, batch: Record, key: Key[Array, ""]) -> State:
    """Return the agent with the belief about the task of the rows ``(time, env, ...)``."""
    rows = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:]), dataclasses.replace(batch, start=None)
    )
    return dataclasses.replace(state, belief=belief_from(state.encoder, rows))


def memory(state: State, envs: int, key: Key[Array, ""]) -> Float[Array, "env latent"]:
    """Draw z for new episodes."""
    each = random_keys.split(key, "z", envs)
    return jax.vmap(state.belief.sample)(each)


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env latent"], dict[str, Array]]:
    """Return SAC's action for the episode's z."""
    z = past.memory
    return sac.act(state.policy, jnp.concatenate([obs, z], -1), key, explore)[0], z, {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the encoder by the critics' loss and SAC once, on rows with contexts."""
    context, config = batch.beside["context"], state.config
    z_key, y_key = random_keys.fold(key, "z"), random_keys.fold(key, "target")

    def with_z(z: Array) -> Record:
        obs, next_obs = (jnp.concatenate([x, z], -1) for x in (batch.obs, batch.next_obs))
        return dataclasses.replace(batch, obs=obs, next_obs=next_obs, beside={})

    z = belief_from(state.encoder, context).sample(z_key)
    y = sac.target(state.policy, with_z(z), y_key)

    def loss(encoder: MLP) -> tuple[Float[Array, ""], Array]:
        belief = belief_from(encoder, context)
        error, _ = sac.critic_loss(state.policy.critics, with_z(belief.sample(z_key)), y)
        divergence = masked_mean(belief.divergence(), batch.mask)
        return error + config.divergence * divergence, divergence

    grads, divergence = jax.grad(loss, has_aux=True)(state.encoder)
    direction, optimiser = adam().update(grads, state.optimiser)
    encoder = descend(state.encoder, direction, config.lr)
    policy, signals = sac.learn(state.policy, with_z(z), key)
    found = signals.metrics | {"belief/divergence": divergence}
    return State(policy, encoder, optimiser, state.belief), Signals(found, signals.samples)
