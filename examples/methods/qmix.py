"""QMIX (Rashid 2018, arXiv:1803.11485): agents that act alone learn one value of their team.

    agents      Q_i = Q(o_i, i, .), one network for all
    team        Q_tot = mix(Q_1(a_1) .. Q_N(a_N), s), rising in every Q_i; s the central state
    target      y = r + g mix'(max_a Q'_1 .. max_a Q'_N, s'),   g = gamma times the discount
    loss        E[ (y - Q_tot)^2 / 2 ]

r is the team's reward, the sum over agents. s is what critics alone see (``unseen``), or all
observations side by side. With ``mixer`` "sum" it is VDN (Sunehag 2018, arXiv:1706.05296). An agent
that is gone counts 0; one that was cut off alone counts with its last observation.
Deviations: single rows and observations instead of episodes and memories, Adam, and the target of
double Q-learning is left out. -0.095 [-0.140, -0.050] after 100,000 steps (3 seeds); the optimum is
-0.0963.

    sterling train examples/methods/qmix.py spread:2-agents-3x3 --steps 100_000 --envs 8
"""

from __future__ import annotations

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import q_of_action, td_error
from sterling.field_types import Count, Limit, NotNegative, OneOf, Share, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam
from sterling.nets.special_layers.monotone_mixer import MonotoneMixer
from sterling.problem.team_obs import TeamObs
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

several_agents = True  # for environments with several agents
uses_unseen = True  # by the mixer only


@config
class Config:
    """Sizes are those of small worlds."""

    mixer: Annotated[str, OneOf(("monotone", "sum"))] = "monotone"  # QMIX, or VDN
    lr: NotNegative = 5e-4  # Adam's initial step size
    anneal: bool = False  # step size falls linearly to 0 over the run
    gamma: Share = 0.99  # discount per step
    batch: Count = 128  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 100_000  # replay capacity in transitions, per seed
    warmup: Whole = 1_000  # steps with random actions before the first update
    target_period: Count = 200  # updates between changes of the target networks
    tau: Share = 1.0  # share by which they move at each change
    exploration_initial: Share = 1.0  # initial epsilon, of every agent by itself
    exploration_final: Share = 0.05  # final epsilon
    exploration_fraction: Share = 0.3  # share of the updates over which epsilon is annealed
    max_grad_norm: Limit = 10.0  # gradients are clipped to this global norm
    width: Count = 64  # units of the agents' two hidden layers
    mixer_width: Count = 32  # units of the mixer's hidden layer


class Nets(eqx.Module):
    """The network of all agents, and the mixer; VDN has none."""

    torso: Encoder
    values: MLP
    mixer: tuple[Encoder, MonotoneMixer] | None  # and the encoder of its state
    actions: Actions = eqx.field(static=True)

    def q(self, team: TeamObs, rows: Record) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return every agent's Q of all actions, before and after each row's step."""
        now, after = (self.values(self.torso(team.own(x))) for x in (rows.obs, rows.next_obs))
        return now, after

    def team_value(
        self, q: Float[Array, "*row agent"], counts: Bool[Array, "*row agent"], whole: Obs
    ) -> Float[Array, "*row"]:
        """Return Q_tot of the values of the agents that count."""
        q = jnp.where(counts, q, 0.0)
        return q.sum(-1) if self.mixer is None else self.mixer[1](q, self.mixer[0](whole))


class State(eqx.Module):
    """Everything that changes during training; the fields of dqn's."""

    net: Nets
    target: Nets
    optimiser: PyTree
    updates: Int[Array, ""]
    planned: Float[Array, ""]
    config: Config
    team: TeamObs = eqx.field(static=True)


def needs(config: Config) -> Transitions:
    """Ask for single rows of a replay."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create the agents' network and the mixer."""
    team = TeamObs.from_spec(spec, "qmix", "dqn")
    one = team.own_spec(spec)
    actions = supported_actions("qmix", one.action, ("discrete",), dict.fromkeys(ONLINE, "mappo"))
    torso = Encoder.create(random_keys.fold(key, "torso"), one)
    sizes = (torso.size, config.width, config.width, actions.outputs)
    values, mixer = MLP.uniform(random_keys.fold(key, "values"), sizes), None
    if config.mixer == "monotone":
        central = Encoder.create(random_keys.fold(key, "central"), team.central_spec(spec))
        numbers = len(team.agents), central.size, config.mixer_width
        mixer = central, MonotoneMixer.create(random_keys.fold(key, "mixer"), *numbers)
    net = Nets(torso, values, mixer, actions)
    none, planned = jnp.zeros((), jnp.int32), jnp.asarray(float(spec.iterations * config.learn))
    return State(net, jax.tree.map(jnp.copy, net), adam().init(net), none, planned, config, team)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return every agent's best action; with ``explore`` and probability epsilon a random one."""
    own = state.team.own(obs)
    return dqn.act_by_values(state, state.net.values(state.net.torso(own)), own, key, explore)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows, of any number of axes."""
    grads, metrics = jax.grad(loss, has_aux=True)(state.net, state, batch)
    return dqn.descend_q(state, grads), Signals(metrics | {"policy/epsilon": dqn.epsilon(state)})


def loss(
    net: Nets, state: State, batch: Record
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return the loss of the module docstring, and metrics."""
    team, target = state.team, state.target
    q = q_of_action(net.q(team, batch)[0], batch.action)
    total = net.team_value(q, team.alive(batch.obs), team.central_state(batch.obs))
    next_q, after = target.q(team, batch)[1], team.own(batch.next_obs)
    best = dqn.mask_forbidden(next_q, after, net.actions.sizes).max(-1)
    there = team.alive(batch.next_obs) | team.cut_off(batch.next_obs)
    next_total = target.team_value(best, there, team.central_state(batch.next_obs))
    error = td_error(total, batch.reward, state.config.gamma * batch.discount, next_total)
    found = masked_mean(0.5 * jnp.square(error), batch.mask)
    return found, {"loss/value": found, "value/q": masked_mean(total, batch.mask)}
