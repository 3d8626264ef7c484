"""Multi-agent PPO: agents act by what they see, and one critic sees everything (Yu 2022).

"The surprising effectiveness of PPO in cooperative multi-agent games", arXiv:2103.01955.

    policy      pi(a_i | o_i, i),  one for all agents; i one-hot where ``identity`` says so
    value       V(s, o_i, i),      s what critics see: ``unseen`` entries of the observation, as its
                                   ``state``; without any, the observations of all agents side by
                                   side, 0 for those that are gone, and who is there
    loss        PPO's (ppo.py) over the rows of all agents, advantages by the team's reward

It is ippo.py with another critic, which is needed for learning alone: who acts is given neither s
nor what others see. Rewards are the sum over all agents, or with ``reward="own"`` each agent's own.
As in ippo.py, an agent that leaves has ended.
Deviations from the paper: those of ppo.py, whose running deviation of rewards stands in place of
normalised values; squared errors of values, not Huber's; networks see one observation and remember
nothing; the critic sees s and o_i whole, where the paper's features for StarCraft drop what is said
twice; of an agent that is gone no row is learned from, where the paper gives its critic zeros.
Evidence: benchmarks/results/central_critic.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.agents import ALIVE, Agents
from sterling.algorithms.online import ippo, ppo
from sterling.nets.encoder import MASK, Encoder, leaves, without_mask
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config
from sterling.unseen import without

several_agents = True  # this algorithm is for worlds of several
uses_unseen = True  # the critic; to who acts it is not given


@config
class Config(ippo.Config):
    """Defaults are ppo's; the reward is the team's, as in the paper."""

    reward = "team"  # what each agent learns from


class Own(MLP):
    """Layers that read the first features alone, those of what an agent itself sees."""

    reads: int = eqx.field(static=True, default=0)  # how many those are

    def __call__(self, x: Float[Array, "... features"]) -> Float[Array, "... outputs"]:
        """The layers' answer."""
        return super().__call__(x[..., : self.reads])


class State(ippo.State):
    """Everything that changes. The policy is an :class:`Own`; the torso and the moments are of what
    an agent sees, ``own`` parts, and then of what the critic sees beside."""

    unseen: tuple[str, ...] = eqx.field(static=True)  # entries for critics; none: see above
    own: int = eqx.field(static=True)


def needs(config: Config) -> Rollouts:
    """Fresh trajectories."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent for all agents: ippo's policy beside a critic of its own."""
    agents = ippo.agents_in(spec, "mappo")
    begun = ippo.init(key, spec, config)
    everything = _seen_in(spec, agents, config)
    torso = Encoder.create(keys.fold(key, "central torso"), everything)
    sizes = (torso.size, *(config.width,) * (config.depth if torso.is_flat else 1), 1)
    activation = config.activation if torso.is_flat else "relu"
    nets = ppo.ActorCritic(
        torso,
        Own(**vars(begun.nets.policy), reads=begun.nets.torso.size),
        MLP.orthogonal(keys.fold(key, "central value"), sizes, activation, 1.0),
        begun.nets.log_std,
        begun.nets.actions,
    )
    made = {
        "nets": nets,
        "optimiser": adam().init(nets),
        "obs_statistics": ObsNormaliser.create(everything, config.normalise_obs),
    }
    own = len(begun.nets.torso.kinds)
    return State(**(vars(begun) | made), unseen=spec.unseen, own=own)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of every agent's policy, or its mode; nothing is needed of what is unseen."""
    return ippo.act(_acting(state), without(obs, state.unseen), key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env agent"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return ippo.log_prob(_acting(state), without(obs, state.unseen), action)


def value(state: State, obs: Obs) -> Float[Array, "env agent"]:
    """The critic's estimate of each agent's return, in the units that rewards are learned in."""
    return ppo.value(state, _seen(state, obs))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """PPO's learning from one rollout ``(time, env, agent, ...)``."""
    return ippo.learned_from(state, batch, ippo.alone(state, batch, _seen), key)


def _acting(state: State) -> State:
    """The same with eyes for what an agent itself sees alone."""
    nets, seen, policy = state.nets, state.obs_statistics, state.nets.policy
    assert isinstance(policy, Own)
    torso = Encoder(nets.torso.parts[: state.own], nets.torso.kinds[: state.own], policy.reads)
    return dataclasses.replace(
        state,
        nets=dataclasses.replace(nets, torso=torso),
        obs_statistics=ObsNormaliser(seen.moments[: state.own], seen.clip),
    )


def _seen_in(spec: Spec, agents: Agents, config: Config) -> spaces.Space[Any]:
    """The space of what the networks see of one agent, and for it: see :func:`_seen`."""
    one, obs = agents.of_each(spec).obs, spec.obs
    parts: Any = ippo.seen_in(one, agents, config)
    mask = {}
    if isinstance(parts, spaces.Dict):
        mask = {name: x for name, x in parts.spaces.items() if name == MASK}
        parts = spaces.Dict({name: x for name, x in parts.spaces.items() if name != MASK})
    whole = leaves(one) * len(agents)
    if isinstance(obs, spaces.Dict) and spec.unseen:
        whole = leaves(spaces.Dict({name: obs[name] for name in spec.unseen}))
    if isinstance(obs, spaces.Dict) and ALIVE in obs.spaces:
        whole = [*whole, obs[ALIVE]]
    return spaces.Dict({"own": parts, "whole": spaces.Tuple(whole), **mask})


def _seen(state: State, obs: Any) -> Any:
    """What the networks see, ``(..., agent, ...)``: ``own``, an agent's part, and ``whole``, what
    only the critic reads, the same for every agent; beside them the mask."""
    own = ippo.seen(state, without(obs, state.unseen))
    mask = {MASK: own[MASK]} if isinstance(own, dict) and MASK in own else {}
    own = without_mask(own)
    first, kind = jax.tree.leaves(own)[0], state.nets.torso.kinds[0]
    lead = first.shape[: first.ndim - len(kind.shape)]  # those of the batch, and that of agents
    axis = len(lead) - 1
    whole = tuple(
        jnp.broadcast_to(jnp.expand_dims(x, axis), (*lead, *x.shape[axis:]))
        for x in _whole(state, obs, lead)
    )
    return {"own": own, "whole": whole, **mask}


def _whole(state: State, obs: Any, lead: tuple[int, ...]) -> list[Array]:
    """The parts of what the critic sees beside an agent's own, without an axis of agents."""
    named = obs if isinstance(obs, dict) else {}
    if state.unseen:
        found = jax.tree.leaves({name: named[name] for name in state.unseen})
    else:
        there = ippo.alive(obs, jnp.ones(lead, bool))
        parts = jax.tree.leaves(without_mask(without(obs, (ALIVE,))))
        shown = [
            jnp.where(there.reshape(*lead, *(1,) * (x.ndim - len(lead))), x, jnp.zeros_like(x))
            for x in parts
        ]
        each = range(len(state.agents))
        found = [
            jax.lax.index_in_dim(x, agent, len(lead) - 1, keepdims=False)
            for agent in each
            for x in shown
        ]
    return [*found, named[ALIVE]] if ALIVE in named else found
