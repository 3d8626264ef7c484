"""Model-based policy optimisation (Janner 2019, "When to Trust Your Model", arXiv:1906.08253).

    model    s' - s, r ~ N(mu_m(s, a), sigma_m(s, a)^2),   P_m(end | s, a) = sigmoid(l_m(s, a))
    L_model  = sum_m E[ -log N(s' - s, r) - log P_m(end or not) ] + c sum_m (most_m - least_m)
    dreams   s_0 from the replay; for t < horizon: a ~ pi(.|s_t), and one of the elite models, drawn
             per row and step, samples r, s_{t+1} and whether the branch ends
    policy   SAC's update (sac.py) on batches with a share ``real`` of replay rows; the others are
             model rollouts (dreams), whose discount is 1 - P_m(end | s, a)

The model has its own feed of replay rows: ``model_updates`` batches in every ``model_every``-th
iteration. ``most`` and ``least`` are learned bounds of its log variance (Chua 2018,
arXiv:1805.12114). A share ``holdout`` of the replay's rows is held out from model learning; the
squared error there selects the ``elites`` best of ``members`` before each model rollout. An
untrained model makes no rollouts.

Deviations from the paper: terminations are learned, where its code has each task's rule; the model
continues training for a fixed number of updates, where its code stops when the held-out error stops
falling; all members see the same batches, and differ by their initial weights; no weight decay;
branches have a constant length ``horizon``, where its code lengthens them; predictions are in units
of their own deviation, as the inputs are; rows are assigned to the elites randomly, in equal parts.
Observations must be vectors of floats.
Evidence: benchmarks/results/models.md.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations.masked_average import masked_mean
from sterling.equations.model_error import prediction_nll
from sterling.equations.running_moments import Moments
from sterling.field_types import Count, Depth, NotNegative, Share, Sizes, Whole
from sterling.needs.feed import DREAM
from sterling.nets.action_heads import Actions
from sterling.nets.dynamics_network import Dynamics, observation_size, prediction_target
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import hidden_sizes
from sterling.nets.optimiser import adam, descend
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Dreams, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config

BOUNDS_WEIGHT = 0.01  # c: weight of the distance between the bounds (code of Chua 2018)
ERROR_RATE = 0.05  # rate at which a batch moves a member's held-out error


@config
class Config(sac.Config):
    """SAC's fields and the model's; defaults are those of the paper's code for MuJoCo."""

    learn: Count = 20  # updates of the policy per iteration
    warmup: Whole = 5_000  # steps with random actions before the first update
    real: Share = 0.05  # share of real rows in the policy's batches
    horizon: Count = 1  # steps of a model rollout
    branches: Count = 80  # model rollouts started per iteration and elite model
    kept: Count = 400_000  # capacity for model-generated rows
    members: Count = 7  # number of models
    elites: Count = 5  # number of best models, which generate the rollouts
    holdout: Share = 0.2  # share of the replay held out to validate models
    model_lr: NotNegative = 1e-3  # Adam's step size for the models
    model_batch: Count = 256  # transitions per update of the models
    model_updates: Count = 500  # updates of the models, each time they are trained
    model_every: Count = 250  # iterations between trainings of the models
    model_width: Sizes = 200  # units per hidden layer of a model, or of each layer
    model_depth: Depth = 4  # hidden layers of a model


class WorldModel(eqx.Module):
    """The ensemble of dynamics models and its statistics; its leaves are ``(member, ...)``."""

    nets: Dynamics
    optimiser: optax.OptState
    seen: ObsNormaliser
    made: Moments  # moments of changes and rewards
    error: Float[Array, "member"]  # recent squared error on held-out rows
    updates: Int[Array, ""]


class State(eqx.Module):
    """Everything that changes during training."""

    policy: sac.State
    model: WorldModel

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Ask for real rows for the model, and for generated and real rows for the policy."""
    if config.n_step > 1 or config.priority:
        raise Mistake("mbpo needs single, uniformly drawn rows. Remove n_step and priority.")
    if config.elites > config.members:
        raise Mistake(
            f"elites={config.elites} must be at most members={config.members}. Lower elites."
        )
    rows = config.branches * config.elites
    dreams = Dreams(rows, config.horizon, config.kept, float(config.real))
    model = Feed(
        name="model",
        batch=config.model_batch,
        updates=config.model_updates,
        every=config.model_every,
        add=("place",),
    )
    policy = Feed(DREAM, batch=config.batch, updates=config.learn, dreams=dreams)
    return Needs(config.collect, (model, policy), config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations are not vectors of floats."""
    count = observation_size(spec.obs, "Use sac.")
    policy = sac.init(key, spec, config)
    inputs, outputs = count + policy.actor.actions.outputs, count + 1
    hidden = hidden_sizes(config.model_width, config.model_depth)
    create = partial(Dynamics.create, inputs=inputs, hidden=hidden, outputs=outputs)
    nets = Ensemble.create(random_keys.fold(key, "model"), config.members, create).nets
    model = WorldModel(
        nets,
        adam().init(nets),
        ObsNormaliser.create(spec.obs),
        Moments.create((outputs,)),
        jnp.zeros(config.members),
        jnp.zeros((), jnp.int32),
    )
    return State(policy, model)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return what SAC returns."""
    return sac.act(state.policy, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state.policy, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return what SAC returns."""
    return sac.value(state.policy, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return sac.action_value(state.policy, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make SAC's update on real and generated transitions ``(batch, ...)``."""
    policy, signals = sac.learn(state.policy, batch, key)
    return State(policy, state.model), signals


def learn_model(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the models once on real transitions ``(batch, ...)``."""
    config, model, actions = state.config, state.model, state.policy.actor.actions
    target_moments = model.made.update(prediction_target(batch), batch.mask)
    model = dataclasses.replace(
        model, seen=model.seen.update(batch.obs, batch.mask), made=target_moments
    )
    held_out = is_held_out(batch.extras["place"], config.holdout)
    grads, (loss, error) = jax.grad(model_loss, has_aux=True)(
        model.nets, model, actions, batch, held_out
    )
    direction, optimiser = adam().update(grads, model.optimiser)
    rate = jnp.where(jnp.any(held_out & batch.mask), ERROR_RATE, 0.0)
    rate = jnp.where(model.updates == 0, jnp.sign(rate), rate)
    model = dataclasses.replace(
        model,
        nets=descend(model.nets, direction, config.model_lr),
        optimiser=optimiser,
        error=model.error + rate * (error - model.error),
        updates=model.updates + 1,
    )
    return State(state.policy, model), Signals({"loss": loss, "error": error.mean()})


def is_held_out(
    place: Int[Array, "batch"], share: Float[Array, ""] | float
) -> Bool[Array, "batch"]:
    """Return which rows are held out from model learning, by a hash of their replay index."""
    bits = random_keys.murmur_finaliser(place.astype(jnp.uint32)) >> 8
    return bits.astype(jnp.float32) < share * 2.0**24


def model_loss(
    nets: Dynamics,
    model: WorldModel,
    actions: Actions,
    batch: Record,
    held_out: Bool[Array, "batch"],
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, "member"]]]:
    """Return L_model of the module docstring, the mean likelihood term, and the members' squared
    errors on held-out rows."""
    goal = model.made.normalise(prediction_target(batch))
    x = jnp.concatenate([model.seen(batch.obs), actions.encode(batch.action)], -1)

    def each(net: Dynamics) -> tuple[Float[Array, ""], Float[Array, ""]]:
        prediction = net(x)
        loss = masked_mean(prediction_nll(prediction, goal, batch.discount), batch.mask & ~held_out)
        squares = jnp.mean(jnp.square(prediction.mean - goal), -1)
        return loss, masked_mean(squares, batch.mask & held_out)

    loss, error = eqx.filter_vmap(each)(nets)
    bounds = BOUNDS_WEIGHT * (jnp.sum(nets.most) - jnp.sum(nets.least))
    return jnp.sum(loss) + bounds, (jnp.mean(loss), error)


def imagine(
    state: State, rows: Record, valid: Bool[Array, "branch"], key: Key[Array, ""]
) -> Record:
    """Generate branches ``(time, branch, ...)`` of ``horizon`` steps from real rows. ``mask`` is
    False in branches that are not ``valid``, and after a predicted termination."""
    model = state.model
    best_members = jnp.argsort(model.error)[: state.config.elites]
    elites = Ensemble(model.nets).take(best_members).nets

    def step(carry: tuple[Array, Array], time: Array) -> tuple[tuple[Array, Array], Record]:
        obs, alive = carry
        step_key = random_keys.fold(key, "step", time)
        action, _ = sac.act(state.policy, obs, random_keys.fold(step_key, "act"), True)
        change, reward, end = predict_step(elites, state, (obs, action), step_key)
        ended = jax.random.uniform(random_keys.fold(step_key, "end"), end.shape) < end
        last = ended | (time == state.config.horizon - 1)
        row = Record(obs, action, reward, 1.0 - end, obs + change, last, alive)
        return (obs + change, alive & ~ended), row

    times = jnp.arange(state.config.horizon, dtype=jnp.int32)
    return jax.lax.scan(step, (rows.obs, valid & (model.updates > 0)), times)[1]


def predict_step(
    elites: Dynamics, state: State, obs_and_action: tuple[Array, Any], key: Key[Array, ""]
) -> tuple[Float[Array, "branch n"], Float[Array, "branch"], Float[Array, "branch"]]:
    """Sample changes and rewards for observations and actions, and return termination
    probabilities; each row uses one of the ``elites``, assigned at random in equal parts."""
    obs, action = obs_and_action
    x = jnp.concatenate([state.model.seen(obs), state.policy.actor.actions.encode(action)], -1)
    order = jax.random.permutation(random_keys.fold(key, "elite"), len(x))
    inputs = x[order].reshape(state.config.elites, -1, x.shape[1])
    prediction = eqx.filter_vmap(lambda net, x: net(x))(elites, inputs)
    restore = jnp.argsort(order)
    mean, log_std, end = (y.reshape(len(x), *y.shape[2:])[restore] for y in prediction)
    sample = mean + jnp.exp(log_std) * jax.random.normal(random_keys.fold(key, "noise"), mean.shape)
    change = sample * state.model.made.deviation[None] + state.model.made.mean[None]
    return change[:, :-1], change[:, -1], jax.nn.sigmoid(end)
