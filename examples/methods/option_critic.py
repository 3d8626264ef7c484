"""The option-critic architecture (Bacon 2017, arXiv:1609.05140), on rollouts: options, each with
its own policy and termination, learned from end to end.

    on arrival   U(s', w) = (1 - b_w(s')) Q(s', w) + b_w(s') V(s'),     V(s) = max_w Q(s, w)
    target       G_t = r_t + g_t ((1 - lambda) U(s_{t+1}, w_t) + lambda G_{t+1})
    options      L_Q  = 1/2 E[ (G - Q(s, w))^2 ]
    actions      L_pi = -E[ (G - Q(s, w)) log pi_w(a|s) + c_H H(pi_w(.|s)) ]
    termination  L_b  = E[ b_w(s') (Q(s', w) - V(s') + c) ]

Q(s, w) are values of options, b_w(s) is the probability that option w ends in s, c the cost of a
change. A new option is argmax_w Q(s, w), with probability ``epsilon`` a random one. The option in
use is the memory of an episode. Deviations: lambda-returns where the paper has one step, rollouts
of several envs (as A2OC, Harb 2018) where it has DQN's replay, separate small networks, and Q(s, w)
where it learns Q(s, w, a). There is one update per rollout, and no target network.
Two seeds reached 140 and 408 (random: 22) by

    sterling train examples/methods/option_critic.py CartPole-v1 --steps 100_000 --envs 8 --seeds 2
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.equations.masked_average import masked_mean
from sterling.equations.returns import continues, lambda_returns
from sterling.field_types import Count, Limit, NotNegative, Share
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """The settings."""

    lr: NotNegative = 3e-3  # Adam's step size
    gamma: Share = 0.99  # discount per step
    lam: Share = 0.95  # lambda of the returns
    length: Count = 16  # steps of each env per update
    options: Count = 2  # number of options
    epsilon: Share = 0.1  # probability of a random option where one is chosen
    change_cost: NotNegative = 0.01  # c: what ending an option must gain
    entropy_coef: NotNegative = 0.01  # c_H: weight of the policies' entropy
    max_grad_norm: Limit = 0.5  # gradients are clipped to this global norm
    width: Count = 64  # units of each of the two hidden layers of each network


class Nets(eqx.Module):
    """Networks whose outputs are one (or for actions several) for each option."""

    policies: MLP
    ends: MLP
    values: MLP


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.OptState
    config: Config
    actions: Actions = eqx.field(static=True)


def needs(config: Config) -> Rollouts:
    """Ask for rollouts."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raise Mistake for actions that are not discrete."""
    actions = supported_actions("option_critic", spec.action, ("discrete",), ONLINE)
    hidden = (spec.obs.shape[0], config.width, config.width)
    outputs = {"policies": config.options * actions.outputs, "ends": config.options}
    nets = {
        name: MLP.orthogonal(random_keys.fold(key, name), (*hidden, count), "tanh", 0.01)
        for name, count in (outputs | {"values": config.options}).items()
    }
    nets = Nets(**nets)
    return State(nets, adam().init(nets), config, actions)


def memory(state: State, envs: int, key: Key[Array, ""]) -> Int[Array, "env"]:
    """Return option 0 for new episodes; the first step chooses another."""
    return jnp.zeros(envs, jnp.int32)


def of_option(outputs: Float[Array, "... many"], option: Int[Array, "..."], count: int) -> Array:
    """Return an option's outputs among those of all options, ``(..., many / count)``."""
    each = outputs.reshape(*outputs.shape[:-1], count, -1)
    return jnp.take_along_axis(each, option[..., None, None], -2)[..., 0, :]


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Int[Array, "env"], dict[str, Array]]:
    """Choose a new option where the last one ends, and an action of its policy."""
    nets, config, keys = state.nets, state.config, random_keys.split(key, "recall", 4)
    q, end = nets.values(obs), jax.nn.sigmoid(nets.ends(obs))
    end = jnp.take_along_axis(end, past.memory[..., None], -1)[..., 0]
    ends = past.first | (jax.random.uniform(keys[0], end.shape) < end)
    new = q.argmax(-1).astype(jnp.int32)
    if explore:
        other = jax.random.randint(keys[1], new.shape, 0, config.options, jnp.int32)
        new = jnp.where(jax.random.uniform(keys[2], new.shape) < config.epsilon, other, new)
    option = jnp.where(ends, new, past.memory)
    pi = state.actions.distribution(of_option(nets.policies(obs), option, config.options))
    action = state.actions.shaped(pi.sample(keys[3]) if explore else pi.mode())
    return action, option, {"option": option}


def value(state: State, past: Past, obs: Obs, key: Key[Array, ""]) -> Float[Array, "..."]:
    """Return V(s), the value of the best option."""
    return state.nets.values(obs).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on a rollout ``(time, env, ...)``."""
    config, option = state.config, batch.extras["option"]
    own = lambda outputs: of_option(outputs, option, config.options)[..., 0]  # noqa: E731
    after = state.nets.values(batch.next_obs)
    end = own(jax.nn.sigmoid(state.nets.ends(batch.next_obs)))
    gain = own(after) - after.max(-1)  # of going on with the option
    arrival = after.max(-1) + (1.0 - end) * gain
    discount, trace = config.gamma * batch.discount, continues(batch.last, batch.mask)
    target = lambda_returns(batch.reward, discount, arrival, trace, lam=config.lam)

    def loss(nets: Nets) -> tuple[Float[Array, ""], dict[str, Array]]:
        error = target - own(nets.values(batch.obs))
        outputs = of_option(nets.policies(batch.obs), option, config.options)
        pi = state.actions.distribution(outputs)
        log_pi = pi.log_prob(state.actions.flat(batch.action))
        kept = jax.lax.stop_gradient(error) * log_pi + config.entropy_coef * pi.entropy()
        ends = own(jax.nn.sigmoid(nets.ends(batch.next_obs))) * batch.discount
        total = 0.5 * error**2 - kept + ends * (gain + config.change_cost)
        found = {"loss/total": total, "options/ends": ends}
        found = {name: masked_mean(x, batch.mask) for name, x in found.items()}
        return found["loss/total"], found

    grads, metrics = jax.grad(loss, has_aux=True)(state.nets)
    direction, optimiser = adam(max_norm=config.max_grad_norm).update(grads, state.optimiser)
    nets = descend(state.nets, direction, config.lr)
    return State(nets, optimiser, config, state.actions), Signals(metrics)
