"""Channels and spec of a Gymnasium or EnvPool world: what it reports beside the reward, as its user
declares it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling.envs.actions.action_bounds import agent_action_space
from sterling.envs.hosted.reported_channels import OBJECTIVES
from sterling.envs.hosted.shared_memory import EnvDescription
from sterling.lookup.name_suggestions import did_you_mean
from sterling.problem.agent_axis import REWARD, Agents
from sterling.problem.channels import Channel, channel_name, check_channels, parse_channels
from sterling.problem.critic_only_obs import check_unseen
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake, Spec


def complete_channels(
    description: EnvDescription, wanted: dict[str, Channel], name: str
) -> dict[str, Channel]:
    """Return the channels that an environment turned out to report, with the user's declarations
    filled in.

    Of a vector reward of several objectives, it prints one line about the weighted sum that is
    learned from.
    """
    made = {}
    for (entry, entries), named in zip(description.channels, description.parts, strict=True):
        known, channel = wanted.get(entry, Channel(better=1)), channel_name(entry)
        own = description.agents if entry == REWARD else tuple(map(channel_name, named))
        parts = own or tuple(str(number) for number in range(entries))
        made[channel] = dataclasses.replace(known, parts=parts)
        if channel != entry:
            print_notice(f"{name}: info[{entry!r}] is reported as the channel {channel}.")
    for read, *others in description.same_paths:
        print_notice(f"{name}: a channel reads {read}, not {' or '.join(others)}. Rename one.")
    if description.weights and not description.agents:
        each = ", ".join(f"{weight:g}" for weight in description.weights)
        print_notice(
            f"{name}: the reward has {len(description.weights)} entries, reported as {OBJECTIVES}. "
            f"Agents learn from their sum with weights {each} (change: --env reward_weights=W,W)."
        )
    return check_channels(made)


def make_spec(
    description: EnvDescription, envs: int, wanted: dict[str, Channel], name: str
) -> Spec:
    """Return the ``Spec`` of a world of environments with this description; print a line about
    observations outside their space."""
    if description.outside:
        print_notice(f"{name}: {description.outside}. Widen the space, or clip the observation.")
    channels = complete_channels(description, wanted, name)
    agents = Agents(description.agents) if description.agents else None
    beside: Any = {"channels": channels, "agents": agents, "limit": description.limit}
    beside["unseen"] = check_unseen(description.unseen, description.obs)
    return Spec(description.obs, agent_action_space(description.action), envs, **beside)


def parse_weights(given: Any) -> tuple[float, ...]:
    """Parse ``reward_weights``: numbers separated by commas; raises Mistake for anything else."""
    words = given.split(",") if isinstance(given, str) else given
    words = words if isinstance(words, list | tuple) else [words]
    try:
        return tuple(float(word) for word in words if word != "")
    except (TypeError, ValueError) as error:
        said = f"reward_weights={given!r} are not numbers. Write for instance reward_weights=1,0.5."
        raise Mistake(said) from error


def envpool_channels(name: str, arrays: Any, text: str) -> dict[str, Channel]:
    """Return the entries of EnvPool's ``info`` that ``text`` declares as channels."""
    known = sorted(
        each.removeprefix("info:")
        for each, array in arrays.items()
        if each.startswith("info:") and "env_id" not in each and len(array.shape) <= 2
    )
    made = {}
    for each, channel in parse_channels(text).items():
        if each not in known:
            near = did_you_mean(each, known, f"it has {', '.join(known) or 'none'}")
            raise Mistake(f"Environment {name} has no info[{each!r}]{near}")
        size = arrays[f"info:{each}"].shape[1:]
        parts = tuple(str(number) for number in range(size[0])) if size else ()
        made[each] = dataclasses.replace(channel, parts=parts)
    return check_channels(made)
