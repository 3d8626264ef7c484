"""What agents can start from in a file: a model of Stable-Baselines3, with the statistics of its
VecNormalize or without, or arrays by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.numpy import load_file

from sterling.envs.actions.action_bounds import is_bounded
from sterling.problem.joined_path import named_leaves
from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.warm_start.init_word import MODEL_FILE, check_same_files
from sterling.training.warm_start.learned_parts import (
    OBS_STATISTICS,
    REWARD_STATISTICS,
    learned_parts,
    role_name,
)
from sterling.training.warm_start.match_parts import Learned
from sterling.training.warm_start.policy_heads import (
    LOG_STD,
    convert_head,
    last_layer,
    policy_head,
    squash_note,
)
from sterling.training.warm_start.sb3_convolutions import TORSO
from sterling.training.warm_start.sb3_model import OutsideModel, read_sb3_model
from sterling.training.warm_start.vec_normalize_file import Normaliser, read_normaliser
from sterling.types import Mistake

DEFAULT_COUNT = 10_000.0  # observations that statistics without a count stand for
IN_CHECKPOINT = "agent/state/"  # prefix of names in a checkpoint, whose arrays have a seed axis


def learned_in_file(settings: Settings, agent: Agent, actions: Any) -> Learned:
    """Return what agents can start from in the settings' file. ``actions``: the environment's own
    action space, None if it is not known."""
    init: Any = settings.init
    path, statistics = check_same_files(init)
    if path.suffix == MODEL_FILE:
        learned = _learned_in_model(settings, agent, actions, read_sb3_model(path))
    else:
        learned = _learned_by_name(path, len(settings.seeds), _own_shapes(agent))
    if statistics is None:
        return learned
    return _with_statistics(learned, statistics, read_normaliser(statistics), len(settings.seeds))


def _with_statistics(learned: Learned, path: Path, read: Normaliser, seeds: int) -> Learned:
    """Return what is learned, with the statistics that a VecNormalize saved."""
    own = {name: array.astype(np.float32) for name, array in read.arrays.items()}
    wide = {name: np.broadcast_to(array, (seeds, *array.shape)) for name, array in own.items()}
    scaled = {REWARD_STATISTICS: "normalised"} if read.scales_rewards else {}
    return dataclasses.replace(
        learned,
        label=f"{learned.label} with {path.name}{f' ({read.note})' if read.note else ''}",
        arrays={**learned.arrays, **wide},
        forms={**learned.forms, **scaled},
        knows_rewards=True,
    )


def _learned_by_name(path: Path, seeds: int, own: Mapping[str, tuple[int, ...]]) -> Learned:
    """Return the arrays of a safetensors file, by the names in docs/warm-starts.md; axes of length
    1 may differ from the shapes ``own``."""
    try:
        stored = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise Mistake(f"init: {path} is no safetensors file, or damaged ({error}).") from error
    arrays = {}
    for written, array in stored.items():
        name = written if "/" in written else written.replace(".", "/")
        if name.startswith(IN_CHECKPOINT):
            role = role_name(name.removeprefix(IN_CHECKPOINT))
            arrays[role] = array[np.arange(seeds) % len(array)]
        else:
            role = role_name(name)
            shape = own.get(role, array.shape)
            fits = np.squeeze(array).shape == tuple(size for size in shape if size != 1)
            shape = shape if fits else array.shape
            arrays[role] = np.broadcast_to(array.reshape(shape), (seeds, *shape))
    for name in [name for name in arrays if name.startswith(f"{OBS_STATISTICS}/")]:
        count = f"{name.rpartition('/')[0]}/count"
        arrays.setdefault(count, np.full(seeds, DEFAULT_COUNT, np.float32))
    return Learned(str(path), arrays, {}, same=False, knows_rewards=False)


def _learned_in_model(
    settings: Settings, agent: Agent, actions: Any, model: OutsideModel
) -> Learned:
    arrays = {name: array.astype(np.float32) for name, array in model.arrays.items()}
    if model.env_units:
        arrays = _in_agent_units(arrays, actions)
    heads = model.head, policy_head(agent.state)
    arrays = convert_head(arrays, *heads)
    shapes = _own_shapes(agent)
    _check_sizes(settings, model, arrays, shapes)
    forms = dict.fromkeys(_networks(arrays), model.activation)
    _check_activation(settings, model, agent)
    many = len(settings.seeds)
    wide = {name: np.broadcast_to(x, (many, *x.shape)) for name, x in arrays.items()}
    return Learned(model.label, wide, forms, same=False, note=squash_note(*heads))


def _in_agent_units(arrays: dict[str, np.ndarray], actions: Any) -> dict[str, np.ndarray]:
    """Return a policy whose actions in the environment's units became actions in [-1, 1], in which
    Sterling's agents act in a bounded box."""
    if not isinstance(actions, spaces.Box) or not is_bounded(actions):
        return arrays
    low, high = (np.asarray(x, np.float64).ravel() for x in (actions.low, actions.high))
    last = last_layer(arrays, "policy")
    weight, bias = (arrays[f"{last}/{each}"] for each in ("weight", "bias"))
    if bias.shape != low.shape:
        return arrays  # said later, with both sizes
    per_unit = 2.0 / (high - low)
    changed = {
        f"{last}/weight": weight * per_unit,
        f"{last}/bias": (bias - low) * per_unit - 1.0,
        LOG_STD: arrays[LOG_STD] + np.log(per_unit),
    }
    return arrays | changed


def _own_shapes(agent: Agent) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the agents' arrays by name, without the seed axis."""
    by_path = {path: x.shape[1:] for path, x in named_leaves(agent.state)}
    parts = learned_parts(agent.state)
    return {name: by_path[path] for part in parts for name, path in part.leaves.items()}


def _networks(names: Mapping[str, Any]) -> list[str]:
    """Return the names of the networks with layers."""
    return list(
        dict.fromkeys(name.partition("/layers/")[0] for name in names if "/layers/" in name)
    )


def _sizes(shapes: Mapping[str, tuple[int, ...]], network: str) -> list[int]:
    """Return the inputs of a network and the outputs of each of its layers."""
    weights: list[tuple[int, ...]] = []
    while (name := f"{network}/layers/{len(weights)}/weight") in shapes:
        weights.append(shapes[name])
    return [weights[0][-2], *(shape[-1] for shape in weights)] if weights else []


def _check_sizes(
    settings: Settings,
    model: OutsideModel,
    arrays: Mapping[str, np.ndarray],
    own: Mapping[str, tuple[int, ...]],
) -> None:
    """Raise Mistake, which names the options to set, if a network of the model has other sizes."""
    theirs = {name: array.shape for name, array in arrays.items()}
    for network in _networks(theirs):
        its, here = _sizes(theirs, network), _sizes(own, network)
        if not here or its == here or network.endswith(TORSO):
            continue
        ends = [its[0], its[-1]], [here[0], here[-1]]
        if ends[0] == ends[1]:
            fact = f"hidden layers of {_listed(its)} units, and this run's of {_listed(here)}"
            remedy = _size_options(settings, its)
            raise Mistake(f"init: {network} of {model.label} has {fact}. {remedy}")
        fact = f"{its[0]} inputs and {its[-1]} outputs"
        raise Mistake(f"init: {network} of {model.label} has {fact}, and in {settings.name} there "
                      f"are {here[0]} and {here[-1]}.")  # fmt: skip


def _listed(sizes: list[int]) -> str:
    return ",".join(map(str, sizes[1:-1]))


def _size_options(settings: Settings, sizes: list[int]) -> str:
    """Return the options that give networks these sizes."""
    hidden, fields = sizes[1:-1], {x.name: x for x in dataclasses.fields(settings.config)}
    if len(set(hidden)) == 1 and {"width", "depth"} <= set(fields):
        return f"Set --width {hidden[0]} --depth {len(hidden)}."
    if "width" in fields and str(fields["width"].type) != "int":
        return f"Set --width {_listed(sizes)}."
    return f"All hidden layers of {settings.title} have one size, so it cannot start from this."


def _check_activation(settings: Settings, model: OutsideModel, agent: Agent) -> None:
    """Raise Mistake, which names the option to set, if this run's networks have another
    activation."""
    for part in learned_parts(agent.state):
        if part.name not in _networks(model.arrays) or part.form == model.activation:
            continue
        fields = [field.name for field in dataclasses.fields(settings.config)]
        remedy = f"{settings.title} has no other."
        if "activation" in fields:
            remedy = f"Set --activation {model.activation}."
        fact = f"the activation {model.activation}, and this run's {part.form}"
        raise Mistake(f"init: {part.name} of {model.label} has {fact}. {remedy}")
