"""What a world of Gymnasium or EnvPool reports beside the reward, as its user declares it."""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling.agents import REWARD, Agents
from sterling.channels import Channel, parse
from sterling.envs.board import Problem, seen
from sterling.envs.reported import OBJECTIVES
from sterling.naming import hint
from sterling.notice import say
from sterling.types import Mistake, Spec
from sterling.unseen import checked


def declared(problem: Problem, wanted: dict[str, Channel], name: str) -> dict[str, Channel]:
    """The channels of what an environment turned out to report; the user's words first, and of a
    reward that is a vector, said in one line, a sum of which more is better."""
    made = {}
    for channel, entries in problem.channels:
        known = wanted.get(channel, Channel(better=1))
        own = problem.agents if channel == REWARD else ()
        parts = own or tuple(str(number) for number in range(entries))
        made[channel] = dataclasses.replace(known, parts=parts)
    if problem.weights and not problem.agents:
        each = ", ".join(f"{weight:g}" for weight in problem.weights)
        say(
            f"{name}: the reward has {len(problem.weights)} entries, reported as {OBJECTIVES}; "
            f"learned from is their sum with weights {each} (others: --env reward_weights=W,W)"
        )
    return made


def spec_of(problem: Problem, envs: int, wanted: dict[str, Channel], name: str) -> Spec:
    """What agents must know of an environment of which this was found out."""
    channels = declared(problem, wanted, name)
    agents = Agents(problem.agents) if problem.agents else None
    beside: Any = {"channels": channels, "agents": agents}
    beside["unseen"] = checked(problem.unseen, problem.obs)
    return Spec(problem.obs, seen(problem.action), envs, **beside)


def weights(given: Any) -> tuple[float, ...]:
    """Numbers as a user types them, with commas between; Mistake for anything else."""
    words = given.split(",") if isinstance(given, str) else given
    words = words if isinstance(words, list | tuple) else [words]
    try:
        return tuple(float(word) for word in words if word != "")
    except (TypeError, ValueError) as error:
        said = f"reward_weights={given!r} are not numbers; write for instance reward_weights=1,0.5"
        raise Mistake(said) from error


def of_pool(name: str, arrays: Any, text: str) -> dict[str, Channel]:
    """The entries of EnvPool's ``info`` that ``text`` declares to be channels."""
    known = sorted(
        each.removeprefix("info:")
        for each, array in arrays.items()
        if each.startswith("info:") and "env_id" not in each and len(array.shape) <= 2
    )
    made = {}
    for each, channel in parse(text).items():
        if each not in known:
            near = hint(each, known, f"it has {', '.join(known) or 'none'}")
            raise Mistake(f"environment {name} has no info[{each!r}]{near}")
        size = arrays[f"info:{each}"].shape[1:]
        parts = tuple(str(number) for number in range(size[0])) if size else ()
        made[each] = dataclasses.replace(channel, parts=parts)
    return made
