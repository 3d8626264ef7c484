"""Deep Q-learning (Mnih 2015, Nature 518) and the parts of Rainbow that cost little.

    target      y   = r + g max_a Q'(s', a)
    double      y   = r + g Q'(s', argmax_a Q(s', a))                 (van Hasselt 2016, eq. 4)
    n steps     y   = sum_{k<n} gamma^k r_{t+k} + gamma^n max_a Q'(s_{t+n}, a)   (Hessel 2018)
    dueling     Q   = V(s) + A(s, a) - mean_a A(s, a)                 (Wang 2016, eq. 9)
    loss        L   = E[ w huber(y - Q(s, a)) ],   w = 1 or (N p)^-b  (Schaul 2016, section 3.4)
    horizon     n = n0^(1-p) n1^p,   1 - gamma = (1 - gamma0)^(1-p) (1 - gamma1)^p
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)

g is gamma times the world's discount, Q' the target network: a copy of Q taken every
``target_period`` updates, or with ``tau`` < 1 moved towards it by that share. Where n and gamma are
to change (``n_step_final``, ``gamma_initial``), p rises from 0 to 1 over ``horizon_updates``: BBF
takes n from 10 to 3 and gamma from 0.97 to 0.997 in the 10,000 updates after each reset of its
networks (Schwarzer 2023, arXiv:2305.19452); here there are no resets. n is rounded.

Deviations from the paper, all customary: Adam for RMSprop, the global norm of gradients clipped,
epsilon annealed over a share of the run's updates. The exponent b of prioritised replay stays what
it is, as in Dopamine's Rainbow (Schaul 2016 anneals it to 1). A time limit bootstraps from the true
successor. ``double``, ``dueling``, ``n_step`` and ``priority`` are off by default: that is DQN.
Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.equations.average import masked_mean
from sterling.equations.value import double_q, dueling, huber, take_action, td_error
from sterling.field_types import Count, Depth, Limit, NotNegative, Share, Whole
from sterling.nets.distributions import Categorical
from sterling.nets.encoder import Encoder, action_mask
from sterling.nets.heads import IMPOSSIBLE
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of Mnih 2015 (extended data table 1) with Adam at 1e-4."""

    lr: NotNegative = 1e-4  # Adam's step size at the start
    anneal: bool = False  # step size falls linearly to 0 over the run
    gamma: Share = 0.99  # discount per step
    batch: Count = 32  # transitions per update
    collect: Count = 4  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed
    warmup: Whole = 50_000  # steps with random actions before the first update
    target_period: Count = 10_000  # updates between two moves of the target network
    tau: Share = 1.0  # share of the way that it moves; 1 copies
    exploration_initial: Share = 1.0  # epsilon at the start
    exploration_final: Share = 0.1  # epsilon once annealed
    exploration_fraction: Share = 0.1  # share of the planned updates to anneal it over
    double: bool = False  # choose the next action by the online network
    dueling: bool = False  # separate streams for V and A
    n_step: Count = 1  # rewards summed before bootstrapping
    n_step_final: Whole = 0  # so many once horizon_updates were made; 0: n_step throughout
    gamma_initial: Share | None = None  # discount from which gamma is approached; None: gamma
    horizon_updates: Count = 10_000  # updates over which n_step and the discount change
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of its importance weights, constant
    huber: Limit = 1.0  # error beyond which the loss is linear; infinite: half the square
    max_grad_norm: Limit = 10.0  # global norm that gradients are clipped to
    width: Count = 512  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class QNetwork(eqx.Module):
    """Q(s, .); ``value`` is the second stream of a dueling network."""

    torso: Encoder
    advantage: MLP
    value: MLP | None

    def __call__(self, obs: Obs) -> Float[Array, "... actions"]:
        """Q of every action."""
        features = self.torso(obs)
        q = self.advantage(features)
        return q if self.value is None else dueling(self.value(features), q)


class State(eqx.Module):
    """Everything that changes."""

    net: QNetwork
    target: QNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]  # updates made; as a float it would stop at 2^24
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform or prioritised replay, of windows as long as sums ever are."""
    most = max(config.n_step, config.n_step_final)
    return dataclasses.replace(Transitions.of_config(config), n_step=most)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are not one choice among several."""
    if not isinstance(spec.action, spaces.Discrete):
        others = "sac, td3 or ppo" if isinstance(spec.action, spaces.Box) else "ppo"
        raise Mistake(f"dqn cannot act in {spec.action}; use {others}")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    sizes = (torso.size, *hidden)
    advantage = MLP.uniform(keys.fold(key, "advantage"), (*sizes, int(spec.action.n)))
    value = MLP.uniform(keys.fold(key, "value"), (*sizes, 1)) if config.dueling else None
    net = QNetwork(torso, advantage, value)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """The best action, or with probability epsilon any that is allowed."""
    q = allowed(state.net(obs), obs)
    greedy = Categorical(q).mode()
    if not explore:
        return greedy, {}
    chance = Categorical(allowed(jnp.zeros_like(q), obs)).sample(keys.fold(key, "chance"))
    wander = jax.random.uniform(keys.fold(key, "wander"), greedy.shape) < epsilon(state)
    return jnp.where(wander, chance, greedy), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Of the greedy policy: 0 for the best action, -inf for others."""
    greedy = Categorical(allowed(state.net(obs), obs)).mode()
    return jnp.where(action == greedy, 0.0, -jnp.inf)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """max_a Q(s, a): the return expected of the greedy policy."""
    return allowed(state.net(obs), obs).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on transitions ``(batch, ...)``."""
    config, now = state.config, horizon(state)
    told = config if now is None else eqx.tree_at(lambda config: config.gamma, config, now[1])
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.net, state.target, batch, told)
    direction, optimiser = adam(max_norm=config.max_grad_norm).update(grads, state.optimiser)
    done = state.updates.astype(jnp.float32)
    rate = config.lr * (1.0 - done / state.planned) if config.anneal else config.lr
    net = descend(state.net, direction, rate)
    updates = state.updates + 1
    due = jnp.mod(updates, config.target_period) == 0
    share = jnp.where(due, config.tau, 0.0)
    target = jax.tree.map(lambda old, new: (1.0 - share) * old + share * new, state.target, net)
    learned = State(net, target, optimiser, updates, state.planned, config)
    metrics = {**metrics, "loss/grad_norm": global_norm(grads), "policy/epsilon": epsilon(state)}
    if now is not None:
        metrics |= {"value/n_step": now[0].astype(jnp.float32), "value/gamma": now[1]}
    return learned, Signals(metrics, {"td_error": error})


def loss(
    net: QNetwork, target: QNetwork, batch: Record, config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Float[Array, ""]], Float[Array, "batch"]]]:
    """L of the module docstring on a batch; also each row's TD error."""
    q = take_action(net(batch.obs), batch.action)
    next_q = allowed(target(batch.next_obs), batch.next_obs)
    if config.double:
        next_value = double_q(allowed(net(batch.next_obs), batch.next_obs), next_q)
    else:
        next_value = next_q.max(-1)
    discount = config.gamma * batch.discount
    error = td_error(q, batch.reward, discount, jax.lax.stop_gradient(next_value))
    weight = batch.extras.get("weight", jnp.ones_like(error))
    total = masked_mean(weight * huber(error, config.huber), batch.mask)
    return total, ({"loss/value": total, "value/q": masked_mean(q, batch.mask)}, error)


def allowed(q: Float[Array, "... actions"], obs: Obs) -> Float[Array, "... actions"]:
    """Q with actions that the observation forbids out of the question."""
    mask = action_mask(obs)
    return q if mask is None else jnp.where(mask, q, IMPOSSIBLE)


def horizon(state: State) -> tuple[Int[Array, ""], Float[Array, ""]] | None:
    """n and gamma as they are now; None where both stay what they are."""
    config = state.config
    if not config.n_step_final and config.gamma_initial is None:
        return None
    p = jnp.minimum(state.updates.astype(jnp.float32) / config.horizon_updates, 1.0)
    n = config.n_step ** (1.0 - p) * (config.n_step_final or config.n_step) ** p
    gamma = jnp.asarray(config.gamma)
    if config.gamma_initial is not None:
        gamma = 1.0 - (1.0 - config.gamma_initial) ** (1.0 - p) * (1.0 - gamma) ** p
    return jnp.round(n).astype(jnp.int32), gamma


def epsilon(state: State) -> Float[Array, ""]:
    """The probability of a random action, annealed linearly."""
    config = state.config
    over = jnp.maximum(config.exploration_fraction * state.planned, 1.0)
    progress = jnp.minimum(state.updates.astype(jnp.float32) / over, 1.0)
    change = config.exploration_final - config.exploration_initial
    return config.exploration_initial + change * progress
