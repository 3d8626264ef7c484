"""Deep Q-learning (Mnih 2015, Nature 518), with optional parts of Rainbow that cost little time.

    target      y   = r + g max_a Q'(s', a)
    double      y   = r + g Q'(s', argmax_a Q(s', a))                 (van Hasselt 2016, eq. 4)
    n steps     y   = sum_{k<n} gamma^k r_{t+k} + gamma^n max_a Q'(s_{t+n}, a)   (Hessel 2018)
    dueling     Q   = V(s) + A(s, a) - mean_a A(s, a)                 (Wang 2016, eq. 9)
    loss        L   = E[ w huber(y - Q(s, a)) ],   w = 1 or (N p)^-b  (Schaul 2016, section 3.4)
    horizon     n = n0^(1-p) n1^p,   1 - gamma = (1 - gamma0)^(1-p) (1 - gamma1)^p
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q(s, a)
    choices     Q(s, a) = mean_j Q_j(s, a_j) for actions of several choices (Seyde 2023, eq. 3)

g is gamma times the environment's discount. The target network Q' is copied from Q every
``target_period`` updates, or with ``tau`` < 1 moved towards Q by that share. If n and gamma change
(``n_step_final``, ``gamma_initial``), p rises from 0 to 1 over ``horizon_updates``: BBF changes n
from 10 to 3 and gamma from 0.97 to 0.997 in the 10,000 updates after each reset of its networks
(Schwarzer 2023, arXiv:2305.19452); here there are no resets. n is rounded.

Deviations from the paper, all customary: Adam instead of RMSprop, clipping of the gradients' global
norm, epsilon annealed over a share of the run's updates. The exponent b of prioritised replay is
constant, as in Dopamine's Rainbow (Schaul 2016 anneals it to 1). Time limits bootstrap from the
true successor. ``double``, ``dueling``, ``n_step`` and ``priority`` are off by default (plain DQN).
Evidence: benchmarks/scores/, docs/scores.md.
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
from sterling.equations.factored_values import dueling_choices, max_q, q_of_choices
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import annealed_discount, annealed_steps, huber, td_error
from sterling.field_types import Activation, Count, Depth, Limit, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import FORBIDDEN_LOGIT, ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of Mnih 2015 (extended data table 1) with Adam at 1e-4."""

    lr: NotNegative = 1e-4  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    gamma: Share = 0.99  # discount per step
    batch: Count = 32  # transitions per update
    collect: Count = 4  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 50_000  # steps with random actions before the first update
    target_period: Count = 10_000  # updates between changes of the target network
    tau: Share = 1.0  # share by which the target network moves at each change; 1: copy Q
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.1  # final epsilon
    exploration_fraction: Share = 0.1  # share of the planned updates over which epsilon is annealed
    double: bool = False  # choose the next action by the online network (double DQN)
    dueling: bool = False  # separate streams for V and A
    n_step: Count = 1  # rewards summed before bootstrapping
    n_step_final: Whole = 0  # n_step after horizon_updates; 0: n_step throughout
    gamma_initial: Share | None = None  # initial discount, which approaches gamma; None: gamma
    horizon_updates: Count = 10_000  # updates over which n_step and the discount change
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    huber: Limit = 1.0  # error beyond which the loss is linear; inf: always half the square
    max_grad_norm: Limit = 10.0  # gradients are clipped to this global norm
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers


class QNetwork(eqx.Module):
    """Q(s, .), or every Q_j(s, .) side by side; ``value`` is the second stream of a dueling
    network."""

    torso: Encoder
    advantage: MLP
    value: MLP | None
    actions: Actions = eqx.field(static=True)

    def __call__(self, obs: Obs) -> Float[Array, "... actions"]:
        """Return Q of every action."""
        features = self.torso(obs)
        q = self.advantage(features)
        if self.value is None:
            return q
        return dueling_choices(self.value(features), q, self.actions.sizes)


class State(eqx.Module):
    """Everything that changes during training."""

    net: QNetwork
    target: QNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]  # as a float the count would stop at 2^24
    planned: Float[Array, ""]  # updates planned
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from replay, with windows for the largest n of n-step sums."""
    largest = max(config.n_step, config.n_step_final)
    return dataclasses.replace(Transitions.of_config(config), n_step=largest)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not choices."""
    actions = supported_actions("dqn", spec.action, ("discrete", "multi"), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)

    def stream(name: str, outputs: int) -> MLP:
        sizes, norm = (torso.size, *hidden, outputs), config.layer_norm
        own_key = random_keys.fold(key, name)
        return MLP.uniform(own_key, sizes, config.activation, layer_norm=norm)

    value = stream("value", 1) if config.dueling else None
    net = QNetwork(torso, stream("advantage", actions.outputs), value, actions)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
    )


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and probability epsilon a random allowed one."""
    return act_by_values(state, state.net(obs), obs, key, explore)


def act_by_values(
    state: Any, q: Float[Array, "... actions"], obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return what ``act`` returns, given Q of every action. Here, in ``act``, ``log_prob``,
    ``value``, ``descend_q`` and ``epsilon`` ``state`` may be the State of any algorithm that has
    the fields of this one which they read."""
    actions, q = state.net.actions, mask_forbidden(q, obs, state.net.actions.sizes)
    greedy = actions.distribution(q).mode()
    if not explore:
        return greedy, {}
    uniform = actions.distribution(mask_forbidden(jnp.zeros_like(q), obs, actions.sizes))
    random_action = uniform.sample(random_keys.fold(key, "chance"))
    rows = q.shape[:-1]
    is_random = jax.random.uniform(random_keys.fold(key, "wander"), rows) < epsilon(state)
    is_random = is_random.reshape(*rows, *(1,) * (greedy.ndim - len(rows)))
    return jnp.where(is_random, random_action, greedy), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    return greedy_log_prob(state.net.actions, state.net(obs), obs, action)


def greedy_log_prob(
    actions: Actions, q: Float[Array, "env actions"], obs: Obs, action: Action
) -> Float[Array, "env"]:
    """Return what ``log_prob`` returns, given Q of every action."""
    same = action == actions.distribution(mask_forbidden(q, obs, actions.sizes)).mode()
    return jnp.where(same.all(-1) if actions.kind == "multi" else same, 0.0, -jnp.inf)


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a), the expected return of the greedy policy."""
    sizes = state.net.actions.sizes
    return max_q(mask_forbidden(state.net(obs), obs, sizes), sizes)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    config, current = state.config, n_step_now(state)
    current_config = (
        config if current is None else eqx.tree_at(lambda config: config.gamma, config, current[1])
    )
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(
        state.net, state.target, batch, current_config
    )
    learned = descend_q(state, grads)
    metrics = {**metrics, "loss/grad_norm": global_norm(grads), "policy/epsilon": epsilon(state)}
    if current is not None:
        metrics |= {"value/n_step": current[0].astype(jnp.float32), "value/gamma": current[1]}
    return learned, Signals(metrics, {"td_error": error})


def descend_q(state: Any, grads: Any, eps: Float[Array, ""] | float = 1e-8) -> Any:
    """Return the state after one step of Adam down ``grads``, its target moved if that is due."""
    config = state.config
    optimise = adam(eps, config.max_grad_norm)
    direction, optimiser = optimise.update(grads, state.optimiser)
    progress = state.updates.astype(jnp.float32)
    lr = config.lr * (1.0 - progress / state.planned) if config.anneal else config.lr
    net, updates = descend(state.net, direction, lr), state.updates + 1
    due = jnp.mod(updates, config.target_period) == 0
    share = jnp.where(due, config.tau, 0.0)
    target = jax.tree.map(lambda old, new: (1.0 - share) * old + share * new, state.target, net)
    fresh = {"net": net, "target": target, "optimiser": optimiser, "updates": updates}
    return dataclasses.replace(state, **fresh)


def loss(
    net: QNetwork, target: QNetwork, batch: Record, config: Config
) -> tuple[Float[Array, ""], tuple[dict[str, Float[Array, ""]], Float[Array, "batch"]]]:
    """Return L of the module docstring on a batch, metrics, and each row's TD error."""
    actions = net.actions
    q = q_of_choices(net(batch.obs), batch.action, actions.sizes)
    next_q = mask_forbidden(target(batch.next_obs), batch.next_obs, actions.sizes)
    if config.double:
        online = mask_forbidden(net(batch.next_obs), batch.next_obs, actions.sizes)
        best = actions.distribution(online).mode()
        next_value = q_of_choices(next_q, best, actions.sizes)
    else:
        next_value = max_q(next_q, actions.sizes)
    discount = config.gamma * batch.discount
    error = td_error(q, batch.reward, discount, jax.lax.stop_gradient(next_value))
    weight = batch.extras.get("weight", jnp.ones_like(error))
    total = masked_mean(weight * huber(error, config.huber), batch.mask)
    return total, ({"loss/value": total, "value/q": masked_mean(q, batch.mask)}, error)


def mask_forbidden(
    q: Float[Array, "... actions"], obs: Obs, sizes: tuple[int, ...]
) -> Float[Array, "... actions"]:
    """Return Q with a very low value for what the mask forbids, of choices among ``sizes``."""
    mask = action_mask(obs, sizes)
    return q if mask is None else jnp.where(mask, q, FORBIDDEN_LOGIT)


def n_step_now(state: State) -> tuple[Int[Array, ""], Float[Array, ""]] | None:
    """Return the current n and gamma; None if both are constant."""
    config = state.config
    if not config.n_step_final and config.gamma_initial is None:
        return None
    p = jnp.minimum(state.updates.astype(jnp.float32) / config.horizon_updates, 1.0)
    n = annealed_steps(config.n_step, config.n_step_final or config.n_step, p)
    if config.gamma_initial is None:
        return n, jnp.asarray(config.gamma)
    return n, annealed_discount(config.gamma_initial, config.gamma, p)


def epsilon(state: Any) -> Float[Array, ""]:
    """Return the probability of a random action, annealed linearly."""
    config = state.config
    over = jnp.maximum(config.exploration_fraction * state.planned, 1.0)
    progress = jnp.minimum(state.updates.astype(jnp.float32) / over, 1.0)
    change = config.exploration_final - config.exploration_initial
    return config.exploration_initial + change * progress
