"""Model-based policy optimisation (Janner 2019, "When to Trust Your Model", arXiv:1906.08253).

    model    s' - s, r ~ N(mu_m(s, a), sigma_m(s, a)^2),   P_m(end | s, a) = sigmoid(l_m(s, a))
    L_model  = sum_m E[ -log N(s' - s, r) - log P_m(end or not) ] + c sum_m (most_m - least_m)
    dreams   s_0 from the replay; for t < horizon: a ~ pi(.|s_t), one of the elite models each row
             and step draws r and s_{t+1}, and whether the branch goes on
    policy   SAC's update (sac.py), on a batch of which a share ``real`` is of the replay and the
             rest was dreamt; a dreamt row's discount is 1 - P_m(end | s, a)

The model learns from the replay by a feed of its own, ``model_updates`` batches in every
``model_every``-th iteration. ``most`` and ``least`` bound its log variance and are learned (Chua
2018, arXiv:1805.12114). A part ``holdout`` of the replay's places teaches no model: by the squared
error there the ``elites`` best of ``members`` are chosen whenever something is dreamt. A model that
has learned nothing yet dreams nothing.

Deviations from the paper: ends are learned, where its code knows each task's rule; the model's
training goes on from where it was for a fixed number of updates, where its code stops when the
error on held out rows does; all members see the same batches, and differ by their first weights; no
weight decay; branches have one length throughout (``horizon``), where its code lengthens them; what
is foretold is in units of its own deviation, as the inputs are; rows are dealt to the elites in
equal parts, by chance. Observations must be vectors of floats.
Evidence: benchmarks/results/models.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.algorithms.online import sac
from sterling.equations.average import masked_mean
from sterling.equations.dynamics import surprise
from sterling.field_types import Count, Depth, NotNegative, Share, Whole
from sterling.needs import DREAM
from sterling.nets.dynamics import Dynamics, numbers, outcome
from sterling.nets.heads import Actions
from sterling.nets.normalise import Moments, ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Dreams, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config

BOUNDS = 0.01  # c: weight of the distance between the bounds (Chua 2018, their code)
RECENT = 0.05  # share by which one batch moves a member's error on held out rows


@config
class Config(sac.Config):
    """SAC's fields, and those of the model; defaults are those of the paper's code for MuJoCo."""

    learn: Count = 20  # updates of the policy per iteration
    warmup: Whole = 5_000  # steps with random actions before the first update
    real: Share = 0.05  # share of the policy's batches that is no dream
    horizon: Count = 1  # steps of a dreamt branch
    branches: Count = 80  # begun per iteration by each elite model
    kept: Count = 400_000  # dreamt rows kept
    members: Count = 7  # models
    elites: Count = 5  # models that dream
    holdout: Share = 0.2  # share of the replay that only judges models
    model_lr: NotNegative = 1e-3  # Adam's step size for the models
    model_batch: Count = 256  # transitions per update of the models
    model_updates: Count = 500  # updates of the models, when they are due
    model_every: Count = 250  # iterations from one time that they are due to the next
    model_width: Count = 200  # units per hidden layer of a model
    model_depth: Depth = 4  # hidden layers of a model


class Model(eqx.Module):
    """What is known of the world; networks have leaves ``(member, ...)``."""

    nets: Dynamics
    optimiser: optax.OptState
    seen: ObsNormaliser
    made: Moments  # of changes and rewards
    error: Float[Array, "member"]  # squared, on held out rows, of late
    updates: Int[Array, ""]


class State(eqx.Module):
    """Everything that changes."""

    policy: sac.State
    model: Model

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Real rows for the model, dreams and real rows for the policy."""
    if config.n_step > 1 or config.priority:
        raise Mistake("mbpo learns from single rows drawn uniformly; leave out n_step and priority")
    if config.elites > config.members:
        raise Mistake(
            f"elites={config.elites} are more than members={config.members}; ask for fewer"
        )
    rows = config.branches * config.elites
    dreams = Dreams(rows, config.horizon, config.kept, float(config.real))
    model = Feed(
        name="model",
        batch=config.model_batch,
        updates=config.model_updates,
        every=config.model_every,
        place=True,
    )
    policy = Feed(DREAM, batch=config.batch, updates=config.learn, dreams=dreams)
    return Needs(config.collect, (model, policy), config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` where observations are no vector of floats."""
    count = numbers(spec.obs, "take sac")
    policy = sac.init(key, spec, config)
    inputs, outputs = count + policy.actor.actions.outputs, count + 1
    hidden = (config.model_width,) * config.model_depth
    each = keys.deal(keys.fold(key, "model"), "member", config.members)
    nets = eqx.filter_vmap(lambda key: Dynamics.create(key, inputs, hidden, outputs))(each)
    model = Model(
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
    """As SAC."""
    return sac.act(state.policy, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return sac.log_prob(state.policy, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """As SAC."""
    return sac.value(state.policy, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The smaller critic's value of actions."""
    return sac.action_value(state.policy, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the policy on real and dreamt transitions ``(batch, ...)``: SAC's."""
    policy, signals = sac.learn(state.policy, batch, key)
    return State(policy, state.model), signals


def learn_model(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the models on real transitions ``(batch, ...)``."""
    config, model, actions = state.config, state.model, state.policy.actor.actions
    made = model.made.update(outcome(batch), batch.mask)
    model = dataclasses.replace(model, seen=model.seen.update(batch.obs, batch.mask), made=made)
    held = held_out(batch.extras["place"], config.holdout)
    grads, (loss, error) = jax.grad(model_loss, has_aux=True)(
        model.nets, model, actions, batch, held
    )
    direction, optimiser = adam().update(grads, model.optimiser)
    rate = jnp.where(jnp.any(held & batch.mask), RECENT, 0.0)
    rate = jnp.where(model.updates == 0, jnp.sign(rate), rate)
    model = dataclasses.replace(
        model,
        nets=descend(model.nets, direction, config.model_lr),
        optimiser=optimiser,
        error=model.error + rate * (error - model.error),
        updates=model.updates + 1,
    )
    return State(state.policy, model), Signals({"loss": loss, "error": error.mean()})


def held_out(place: Int[Array, "batch"], share: Float[Array, ""] | float) -> Bool[Array, "batch"]:
    """Which rows only judge the models: by a hash of their place, so always the same."""
    bits = keys.finalised(place.astype(jnp.uint32)) >> 8
    return bits.astype(jnp.float32) < share * 2.0**24


def model_loss(
    nets: Dynamics, model: Model, actions: Actions, batch: Record, held: Bool[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, "member"]]]:
    """L_model of the module docstring; also its mean over members, and their squared errors on
    held out rows."""
    wanted = (outcome(batch) - model.made.mean[None]) / deviation(model)[None]
    x = jnp.concatenate([model.seen(batch.obs), actions.codes(batch.action)], -1)

    def each(net: Dynamics) -> tuple[Float[Array, ""], Float[Array, ""]]:
        foretold = net(x)
        loss = masked_mean(surprise(foretold, wanted, batch.discount), batch.mask & ~held)
        squares = jnp.mean(jnp.square(foretold.mean - wanted), -1)
        return loss, masked_mean(squares, batch.mask & held)

    loss, error = eqx.filter_vmap(each)(nets)
    bounds = BOUNDS * (jnp.sum(nets.most) - jnp.sum(nets.least))
    return jnp.sum(loss) + bounds, (jnp.mean(loss), error)


def imagine(
    state: State, obs: Float[Array, "branch n"], valid: Bool[Array, "branch"], key: Key[Array, ""]
) -> Record:
    """Branches ``(time, branch, ...)`` of ``horizon`` steps from observations on; those that are
    not ``valid``, and what would follow an end, have ``mask`` False."""
    model = state.model
    best = jnp.argsort(model.error)[: state.config.elites]
    elites = jax.tree.map(lambda x: x[best], model.nets)

    def step(carry: tuple[Array, Array], time: Array) -> tuple[tuple[Array, Array], Record]:
        obs, alive = carry
        now = keys.fold(key, "step", time)
        action, _ = sac.act(state.policy, obs, keys.fold(now, "act"), True)
        change, reward, end = foreseen(elites, state, (obs, action), now)
        ended = jax.random.uniform(keys.fold(now, "end"), end.shape) < end
        last = ended | (time == state.config.horizon - 1)
        row = Record(obs, action, reward, 1.0 - end, obs + change, last, alive)
        return (obs + change, alive & ~ended), row

    times = jnp.arange(state.config.horizon, dtype=jnp.int32)
    return jax.lax.scan(step, (obs, valid & (model.updates > 0)), times)[1]


def foreseen(
    elites: Dynamics, state: State, at: tuple[Array, Any], key: Key[Array, ""]
) -> tuple[Float[Array, "branch n"], Float[Array, "branch"], Float[Array, "branch"]]:
    """Drawn changes and rewards of observations and actions, and the chances of an end: each row's
    from one of the ``elites``, which are dealt out by chance."""
    obs, action = at
    x = jnp.concatenate([state.model.seen(obs), state.policy.actor.actions.codes(action)], -1)
    order = jax.random.permutation(keys.fold(key, "elite"), len(x))
    dealt = x[order].reshape(state.config.elites, -1, x.shape[1])
    foretold = eqx.filter_vmap(lambda net, x: net(x))(elites, dealt)
    back = jnp.argsort(order)
    mean, log_std, end = (y.reshape(len(x), *y.shape[2:])[back] for y in foretold)
    drawn = mean + jnp.exp(log_std) * jax.random.normal(keys.fold(key, "noise"), mean.shape)
    made = drawn * deviation(state.model)[None] + state.model.made.mean[None]
    return made[:, :-1], made[:, -1], jax.nn.sigmoid(end)


def deviation(model: Model) -> Float[Array, "n"]:
    """Of changes and rewards so far."""
    return jnp.sqrt(model.made.variance) + 1e-6
