"""Match the parts of an agent with the arrays that it can start from, by name and shape.

What is taken must compute what it computed before. So a network is taken only with the encoder and
the normaliser before it, values only with the same unit of rewards, and of a network whose last
layers have other shapes only the first layers. An optimiser is taken only by the same algorithm,
and only with all of its networks.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from sterling.problem.joined_path import named_leaves
from sterling.training.saving.added_leaves import REMAINDER, added_leaves
from sterling.training.warm_start.fold_normaliser import fold_normaliser
from sterling.training.warm_start.learned_parts import (
    NETWORK,
    NUMBER,
    OBS_STATISTICS,
    OPTIMISER,
    REWARD_STATISTICS,
    STATISTICS,
    Part,
    learned_parts,
)
from sterling.types import Mistake

VALUE_GROUPS = ("value", "critics", "target", "advantage")  # in the unit of rewards
RAW_REWARDS = "not normalised"
LAYER = re.compile(r"/(?:layers|norms)/(\d+)/")
NOT_THERE, OTHER_SHAPE = "not in it", "other shape"


@dataclasses.dataclass(frozen=True)
class Learned:
    """What agents can start from."""

    label: str  # for messages
    arrays: Mapping[str, np.ndarray]  # by name, each with a leading axis of the agents' seeds
    forms: Mapping[str, str]  # the forms of its parts, where they are known
    same: bool  # whether the same algorithm learned it
    note: str = ""  # what a line says of the policy's outputs
    knows_rewards: bool = True  # whether ``forms`` says whether rewards were normalised


class Match(NamedTuple):
    """What is taken, and what is not."""

    arrays: dict[str, np.ndarray]  # by their paths in the State
    taken: dict[str, tuple[int, int]]  # groups -> number of arrays taken, number of all
    left: dict[str, str]  # groups of which nothing is taken -> why
    folded: bool  # whether a normaliser was folded into the networks' first layers


def match_parts(state: PyTree, learned: Learned) -> Match:
    """Return what agents with this State take. Raise Mistake if no network fits."""
    parts = learned_parts(state)
    learned = dataclasses.replace(learned, arrays=_with_remainders(learned.arrays, parts))
    shapes = _shapes_by_path(state)
    own = [part for part in parts if part.kind != OPTIMISER]
    fits = {part.name: _fit_part(part, learned, shapes) for part in own}
    reasons = {name: reason for name, (_, reason) in fits.items() if reason}
    found = {part.name: fits[part.name][0] for part in own}
    for name, reason in _excluded(own, state, learned).items():
        if found[name]:
            found[name], reasons[name] = {}, reason
    networks = [part for part in own if part.kind == NETWORK]
    _drop_lone_arrays(networks, found, reasons)
    if not any(array.ndim > 2 for part in networks for array in found[part.name].values()):
        raise Mistake(f"nothing of {learned.label} fits: {_reason_text(own, reasons)}.")
    _check_encoder(own, found, learned)
    folded = normalises_obs(parts) != _normalises(learned)
    if folded:
        found = fold_normaliser(state, parts, found, learned.arrays)
    arrays = {path: array for each in found.values() for path, array in each.items()}
    whole = all(len(found[part.name]) == len(part.leaves) for part in networks)
    optimisers = [part for part in parts if part.kind == OPTIMISER]
    if learned.same and whole and not folded:
        for part in optimisers:
            arrays |= _fit_part(part, learned, shapes)[0]
    return Match(arrays, *_summarise(parts, arrays, reasons, learned.same), folded)


def _with_remainders(arrays: Mapping[str, np.ndarray], parts: list[Part]) -> dict[str, np.ndarray]:
    """Return the arrays, with 0 for the remainders of means that older runs and files lack."""
    names = [name for part in parts for name in part.leaves]
    missing = added_leaves(arrays, names)
    zeros = {name: np.zeros_like(arrays[name.replace(REMAINDER, "/mean")]) for name in missing}
    return {**arrays, **zeros}


def normalises_obs(parts: list[Part]) -> bool:
    """Whether the agent normalises observations."""
    return any(part.name == OBS_STATISTICS and part.leaves for part in parts)


def _normalises(learned: Learned) -> bool:
    return any(name.startswith(f"{OBS_STATISTICS}/") for name in learned.arrays)


def _shapes_by_path(state: PyTree) -> dict[str, tuple[int, ...]]:
    return {path: x.shape for path, x in named_leaves(state)}


def _fit_part(
    part: Part, learned: Learned, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays of a part that fit, by their paths, and why others do not."""
    there = {name: _find_array(name, learned.arrays) for name in part.leaves}
    if any(array is None for array in there.values()):
        return {}, NOT_THERE
    form = learned.forms.get(part.name, part.form)
    if form != part.form:
        return {}, f"{form} there, {part.form} here"
    misfits = [name for name, path in part.leaves.items() if _shape(there[name]) != shapes[path]]
    if misfits and not LAYER.search(misfits[0]):
        return {}, OTHER_SHAPE
    first = min((_layer_number(name) for name in misfits), default=None)
    kept = {
        path: np.asarray(there[name])
        for name, path in part.leaves.items()
        if first is None or _layer_number(name) < first
    }
    return kept, OTHER_SHAPE if misfits else ""


def _find_array(name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return an array; a target network that is not there is a copy of its network."""
    below = name.removeprefix("target/")
    others = (below, f"critics/{below}") if below != name else ()
    return next((arrays[each] for each in (name, *others) if each in arrays), None)


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(array.shape)


def _layer_number(name: str) -> int:
    found = LAYER.search(name)
    return int(found[1]) if found else 0


def _excluded(parts: list[Part], state: Any, learned: Learned) -> dict[str, str]:
    """Return the parts that are not taken although they may fit: values in another unit of
    rewards, and learned numbers that are constant in this run."""
    forms = {part.name: part.form for part in parts}
    here = forms.get(REWARD_STATISTICS, RAW_REWARDS)
    there = learned.forms.get(REWARD_STATISTICS, RAW_REWARDS if learned.knows_rewards else here)
    made = {}
    for part in parts:
        if (
            part.group in VALUE_GROUPS
            and here != there
            and not part.name.startswith("target/policy")
        ):
            made[part.name] = f"rewards are {there} there, {here} here"
        tuned = f"tune_{part.name.removeprefix('log_')}"
        if part.kind == NUMBER and not getattr(getattr(state, "config", None), tuned, True):
            made[part.name] = "constant here"
    return made


def _drop_lone_arrays(
    networks: list[Part], found: dict[str, dict[str, np.ndarray]], reasons: dict[str, str]
) -> None:
    """Leave out single arrays, such as deviations, beside a network of which a part is lacking."""
    for part in networks:
        beside = [p for p in networks if p.group == part.group and _is_layered(p)]
        lacking = any(len(found[p.name]) < len(p.leaves) for p in beside)
        if lacking and not _is_layered(part) and found[part.name]:
            found[part.name] = {}
            reasons.setdefault(part.name, OTHER_SHAPE)


def _is_layered(part: Part) -> bool:
    return any(LAYER.search(name) for name in part.leaves)


def _check_encoder(
    parts: list[Part], found: dict[str, dict[str, np.ndarray]], learned: Learned
) -> None:
    """Raise Mistake if networks would read features of an encoder that does not fit, or another
    form of observations."""
    lacking = [p for p in parts if p.group == "torso" and len(found[p.name]) < len(p.leaves)]
    if lacking:
        raise Mistake(f"the encoder of {learned.label} has another form than this run's, and its "
                      "networks need it.")  # fmt: skip
    statistics = [part for part in parts if part.name == OBS_STATISTICS and part.leaves]
    if statistics and not found[OBS_STATISTICS]:
        if _normalises(learned):
            raise Mistake(f"{learned.label} normalises other observations than this run.")
        raise Mistake(
            f"the networks of {learned.label} read observations as they are, and this "
            "run normalises them. Add --no-normalise-obs (normalise_obs=False), or the statistics "
            "that they were trained with (docs/warm-starts.md)."
        )


def _reason_text(parts: list[Part], reasons: Mapping[str, str]) -> str:
    networks = dict.fromkeys(part.group for part in parts if part.kind == NETWORK)
    by_group: dict[str, str] = {}
    for part in parts:
        if part.name in reasons:
            by_group.setdefault(part.group, reasons[part.name])
    return ", ".join(f"{group} ({by_group.get(group, OTHER_SHAPE)})" for group in networks)


def _summarise(
    parts: list[Part], arrays: dict[str, np.ndarray], reasons: Mapping[str, str], same: bool
) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Return by group how many arrays are taken, and why nothing is; networks first.
    Another algorithm's optimiser is not mentioned."""
    taken: dict[str, tuple[int, int]] = {}
    why: dict[str, str] = {}
    order = (NETWORK, NUMBER, STATISTICS, OPTIMISER)
    for part in sorted(parts, key=lambda part: order.index(part.kind)):
        group = "optimiser" if part.kind == OPTIMISER else part.group
        count = sum(path in arrays for path in part.leaves.values())
        before = taken.get(group, (0, 0))
        taken[group] = before[0] + count, before[1] + len(part.leaves)
        default = "its networks differ" if part.kind == OPTIMISER else NOT_THERE
        why[group] = reasons.get(part.name, why.get(group, default))
    if not same:
        taken.pop("optimiser", None)
    kept = {group: counts for group, counts in taken.items() if counts[0]}
    left = {group: why[group] for group, counts in taken.items() if counts[1] and not counts[0]}
    return kept, left
