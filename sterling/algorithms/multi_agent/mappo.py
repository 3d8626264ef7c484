"""Multi-agent PPO: agents act on their own observations, and one critic sees all (Yu 2022).

"The surprising effectiveness of PPO in cooperative multi-agent games", arXiv:2103.01955.

    policy      pi(a_i | o_i, i),  one for all agents; i one-hot where ``identity`` says so
    value       V(s, o_i, i),      s the central state: ``unseen`` entries of the observation, such
                                   as its ``state``; without any, all agents' observations, 0 for
                                   those that left, and which agents are present (to one that was
                                   cut off alone: itself, and those that were cut off with it)
    loss        PPO's (ppo.py) over the rows of all agents, advantages by the team's reward

It is ippo.py with another critic, which is used only in learning: policies see neither s nor other
agents' observations. Rewards are the sum over all agents, or with ``reward="own"`` each agent's
own. As in ippo.py, an agent that leaves has terminated, unless it was cut off.
Deviations from the paper: those of ppo.py, which normalises rewards by a running deviation instead
of values; squared errors of values, not Huber's; networks see only the current observation; the
critic sees all of s and o_i, where the paper's features for StarCraft drop duplicates; rows of an
agent that left are ignored, where the paper gives its critic zeros.
Evidence: benchmarks/results/central_critic.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.multi_agent import ippo
from sterling.algorithms.online import ppo
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder, space_without_mask, without_mask
from sterling.nets.optimiser import adam
from sterling.nets.running_statistics import ObsNormaliser
from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.agent_axis import ALIVE, TRUNCATED
from sterling.problem.team_obs import TeamObs
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config

several_agents = True  # for environments with several agents
uses_unseen = True  # by the critic only; policies never get it


@config
class Config(ippo.Config):
    """Defaults are ppo's, but the reward is the team's, as in the paper."""

    reward = "team"  # what each agent learns from


class OwnObsMLP(MLP):
    """An MLP that reads only the first features, those of the agent's own observation."""

    reads: int = eqx.field(static=True, default=0)  # the number of those features

    def __call__(self, x: Float[Array, "... features"]) -> Float[Array, "... outputs"]:
        """Apply all layers to the first ``reads`` features."""
        return super().__call__(x[..., : self.reads])


class State(ippo.State):
    """Everything that changes during training. The policy is an :class:`OwnObsMLP`. The leaves of
    the torso and the moments belong first to an agent's own observation, then to the critic's."""

    own: int = eqx.field(static=True)  # number of leaves of an agent's own observation


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create the learner that all agents share: ippo's policy, and a central critic."""
    TeamObs.from_spec(spec, "mappo", "ppo")
    created = ippo.init(key, spec, config)
    critic_space = _critic_obs_space(spec, created.team)
    if isinstance(spec.encoder, tuple):
        raise Mistake("mappo's critic does not support an encoder of one's own. Use ippo.")
    seen = dataclasses.replace(spec, obs=critic_space)
    torso = Encoder.create(random_keys.fold(key, "central torso"), seen)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth), 1)
    activation, norm = torso.hidden_activation(config.activation), config.layer_norm
    value_key = random_keys.fold(key, "central value")
    nets = ppo.ActorCritic(
        torso,
        OwnObsMLP(**vars(created.nets.policy), reads=created.nets.torso.size),
        MLP.orthogonal(value_key, sizes, activation, 1.0, layer_norm=norm),
        created.nets.log_std,
        created.nets.actions,
    )
    changed = {
        "nets": nets,
        "optimiser": adam().init(nets),
        "obs_statistics": ObsNormaliser.create(critic_space, config.normalise_obs),
    }
    own = len(created.nets.torso.kinds)
    return State(**(vars(created) | changed), own=own)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of every agent's policy, or its mode; ``unseen`` entries are not needed."""
    return ippo.act(_policy_state(state), obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env agent"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return ippo.log_prob(_policy_state(state), obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env agent"]:
    """Return the critic's estimate of each agent's return, in units of normalised rewards."""
    return ppo.value(state, _critic_obs(state, obs))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make PPO's updates on one rollout ``(time, env, agent, ...)``."""
    return ippo.learn_from_rows(state, batch, ippo.rows_per_agent(state, batch, _critic_obs), key)


def _policy_state(state: State) -> State:
    """Return the state with torso and moments for an agent's own observation only."""
    nets, moments, policy = state.nets, state.obs_statistics, state.nets.policy
    assert isinstance(policy, OwnObsMLP)
    torso = Encoder(nets.torso.parts[: state.own], nets.torso.kinds[: state.own], policy.reads)
    return dataclasses.replace(
        state,
        nets=dataclasses.replace(nets, torso=torso),
        obs_statistics=ObsNormaliser(moments.moments[: state.own], moments.clip),
    )


def _critic_obs_space(spec: Spec, team: TeamObs) -> spaces.Space[Any]:
    """Return the space of :func:`_critic_obs` for one agent."""
    own: Any = team.own_spec(spec).obs
    has_mask = isinstance(own, spaces.Dict) and ACTION_MASK in own.spaces
    mask = {ACTION_MASK: own[ACTION_MASK]} if has_mask else {}
    return spaces.Dict(
        {"own": space_without_mask(own), "whole": team.central_spec(spec).obs, **mask}
    )


def _critic_obs(state: State, obs: Any) -> Any:
    """Return the networks' input ``(..., agent, ...)``: ``own`` (the agent's observation),
    ``whole`` (the critic's input, equal for all agents that were not cut off) and the action
    mask."""
    own, lead = state.team.own(obs), state.team.lead(obs)
    mask = {ACTION_MASK: own[ACTION_MASK]} if isinstance(own, dict) and ACTION_MASK in own else {}
    whole = _for_each_agent(state.team.central_state(obs), lead)
    if isinstance(obs, dict) and TRUNCATED in obs:
        cut = obs[TRUNCATED].astype(bool)
        before = {**obs, ALIVE: jnp.maximum(obs[ALIVE], obs[TRUNCATED])}  # with those cut off
        whole = [
            jnp.where(cut.reshape(*lead, *(1,) * (x.ndim - len(lead))), y, x)
            for x, y in zip(
                whole, _for_each_agent(state.team.central_state(before), lead), strict=True
            )
        ]
    return {"own": without_mask(own), "whole": tuple(whole), **mask}


def _for_each_agent(parts: tuple[Array, ...], lead: tuple[int, ...]) -> list[Array]:
    """Return the leaves of a central state with an axis of agents, for whom they are the same."""
    axis = len(lead) - 1
    return [jnp.broadcast_to(jnp.expand_dims(x, axis), (*lead, *x.shape[axis:])) for x in parts]
