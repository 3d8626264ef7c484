"""Read the networks of a model that Stable-Baselines3 saved, under Sterling's names.

Only tensors and JSON are read. Settings that the zip holds as pickles are not opened; where one
matters (the activation), its printed form beside the pickle is read.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sterling.training.warm_start.policy_heads import BOTH, LOG_STD, RAW, TANH
from sterling.training.warm_start.sb3_convolutions import read_convolutions
from sterling.training.warm_start.torch_tensors import MAX_BYTES, read_tensors
from sterling.types import Mistake

ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "SiLU": "silu", "ELU": "elu"}
TORCH_ACTIVATION = re.compile(r"activation\.(\w+)'")
SUPPORTED = "MlpPolicy (PPO, A2C, SAC, TD3, DDPG, DQN) or CnnPolicy (PPO, A2C, DQN)"
# networks with convolutions: Sterling's word before their names -> their extractor, by algorithm
EXTRACTORS = {
    "PPO or A2C": {"": "features_extractor"},
    "DQN": {"": "q_net.features_extractor", "target/": "q_net_target.features_extractor"},
}
# by the name of a tensor that only they have: the algorithms, their activation by default, the form
# of the policy's outputs, and the networks in order of their layers: Sterling's name -> torch's
KINDS: dict[str, tuple[str, str, str, dict[str, tuple[str, ...]]]] = {
    "action_net": ("PPO or A2C", "Tanh", RAW, {
        "policy": ("mlp_extractor.policy_net", "action_net"),
        "value": ("mlp_extractor.value_net", "value_net"),
    }),
    "actor.latent_pi": ("SAC", "ReLU", BOTH, {
        "policy": ("actor.latent_pi", "actor.mu"),
        "critics/first": ("critic.qf0",),
        "critics/second": ("critic.qf1",),
        "target/first": ("critic_target.qf0",),
        "target/second": ("critic_target.qf1",),
    }),
    "actor.mu": ("TD3", "ReLU", TANH, {
        "policy": ("actor.mu",),
        "critics/first": ("critic.qf0",),
        "critics/second": ("critic.qf1",),
        "target/policy": ("actor_target.mu",),
        "target/first": ("critic_target.qf0",),
        "target/second": ("critic_target.qf1",),
    }),
    "q_net.q_net": ("DQN", "ReLU", RAW, {
        "advantage": ("q_net.q_net",),
        "target/advantage": ("q_net_target.q_net",),
    }),
}  # fmt: skip


class OutsideModel(NamedTuple):
    """The networks of a model from outside."""

    label: str
    arrays: dict[str, np.ndarray]  # by Sterling's names, without a seed axis
    activation: str
    head: str  # the form of the policy's outputs
    env_units: bool  # whether the policy's actions are in the environment's units, not in [-1, 1]


def read_sb3_model(path: Path) -> OutsideModel:
    """Return the networks of a model's zip; raise Mistake for models that cannot be read."""
    settings, tensors, variables = _read_members(path)
    kind = next((kind for kind in KINDS if any(x.startswith(kind) for x in tensors)), None)
    if kind is None or any("features_extractor.extractors" in name for name in tensors):
        raise Mistake(f"{path} is not an {SUPPORTED} of Stable-Baselines3. Other policies are not "
                      "read.")  # fmt: skip
    if settings.get("use_sde"):
        raise Mistake(f"{path} was trained with use_sde, which Sterling does not have.")
    name, default, head, networks = KINDS[kind]
    arrays: dict[str, np.ndarray] = {}
    for own, theirs in networks.items():
        arrays |= _network(own, theirs, tensors)
    with_pictures = any("features_extractor." in each for each in tensors)
    if with_pictures:
        arrays = _with_convolutions(path, name, arrays, settings, tensors)
    arrays |= _deviations(head, arrays, tensors)
    if "log_ent_coef" in variables:
        arrays["log_alpha"] = variables["log_ent_coef"].reshape(())
    label = f"{path} ({name} of Stable-Baselines3)"
    activation = _activation(path, settings, default)
    if with_pictures:
        _check_relu(path, arrays, activation)
        activation = "relu"
    is_box = LOG_STD in arrays
    return OutsideModel(label, arrays, activation, head, head == RAW and is_box)


def _read_members(
    path: Path,
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the settings, the networks' tensors and other tensors in a model's zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise Mistake(f"{path} is larger than 2 GiB.")
            names = archive.namelist()
            if "policy.pth" not in names or "data" not in names:
                raise Mistake(f"{path} is no model of Stable-Baselines3: it has no policy.pth.")
            settings = json.loads(archive.read("data"))
            policy = archive.read("policy.pth")
            extra = "pytorch_variables.pth"
            others = archive.read(extra) if extra in names else None
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise Mistake(f"{path} is no model of Stable-Baselines3, or damaged ({error}).") from error
    more = {} if others is None else read_tensors(others, f"{path}: {extra}")
    return settings, read_tensors(policy, f"{path}: policy.pth"), more


def _network(
    own: str, theirs: tuple[str, ...], tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return a network's layers under Sterling's names. torch numbers activations as layers too,
    and its weights are (outputs, inputs)."""
    layers = []
    for prefix in theirs:
        inside = re.compile(re.escape(prefix) + r"\.(?:(\d+)\.)?weight")
        found = [match for name in tensors if (match := inside.fullmatch(name))]
        layers += [match[0] for match in sorted(found, key=lambda match: int(match[1] or 0))]
    made = {}
    for number, name in enumerate(layers):
        made[f"{own}/layers/{number}/weight"] = tensors[name].T
        made[f"{own}/layers/{number}/bias"] = tensors[name.removesuffix("weight") + "bias"]
    return made


def _with_convolutions(
    path: Path,
    name: str,
    arrays: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Return the networks of a CnnPolicy: the convolutions, and the layer after them as the first
    of every network. Raise Mistake where networks read other features than Sterling's would."""
    if name not in EXTRACTORS:
        raise Mistake(f"{path} is a CnnPolicy of {name}, whose critics read actions beside another "
                      f"layer than Sterling's do. Of CnnPolicy, PPO's, A2C's and DQN's are "
                      "read.")  # fmt: skip
    if "normalize_images" in (settings.get("policy_kwargs") or {}):
        raise Mistake(f"{path} was trained with normalize_images, and Sterling always divides "
                      "bytes by 255.")  # fmt: skip
    if _differ(tensors, "pi_features_extractor.", "vf_features_extractor."):
        raise Mistake(f"{path} has other convolutions for the policy than for the value, and "
                      "Sterling's share them: train with share_features_extractor=True."
                      )  # fmt: skip
    shape = (settings.get("observation_space") or {}).get("_shape", ())
    made: dict[str, np.ndarray] = {}
    for word, extractor in EXTRACTORS[name].items():
        torso, inner = read_convolutions(str(path), extractor, shape, tensors)
        made |= {f"{word}{each}": array for each, array in torso.items()}
        networks = dict.fromkeys(
            each.partition("/layers/")[0]
            for each in arrays
            if each.startswith("target/") == (word == "target/")
        )
        for own in networks:
            made |= {f"{own}/layers/0/{part}": array for part, array in inner.items()}
    return made | {_one_layer_later(each): array for each, array in arrays.items()}


def _differ(tensors: Mapping[str, np.ndarray], one: str, other: str) -> bool:
    """Whether tensors whose names begin with ``one`` differ from those that begin with
    ``other``."""
    return any(
        not np.array_equal(array, tensors[other + name.removeprefix(one)])
        for name, array in tensors.items()
        if name.startswith(one)
    )


def _one_layer_later(name: str) -> str:
    network, _, rest = name.partition("/layers/")
    number, _, part = rest.partition("/")
    return f"{network}/layers/{int(number) + 1}/{part}"


def _check_relu(path: Path, arrays: Mapping[str, np.ndarray], activation: str) -> None:
    """Raise Mistake if there are hidden layers after the convolutions' with another activation."""
    deeper = any(name.endswith("/layers/2/weight") and "torso" not in name for name in arrays)
    if deeper and activation != "relu":
        raise Mistake(f"{path} has relu after its convolutions and {activation} after its other "
                      "hidden layers, and Sterling has relu after all of them.")  # fmt: skip


def _deviations(
    head: str, arrays: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the arrays for the policy's deviations: beside the network (PPO, A2C), or in its last
    layer (SAC)."""
    if "log_std" in tensors:
        return {LOG_STD: tensors["log_std"]}
    if head != BOTH:
        return {}
    last = max(name for name in arrays if name.startswith("policy/") and name.endswith("weight"))
    last = last.removesuffix("/weight")
    parts = {"weight": tensors["actor.log_std.weight"].T, "bias": tensors["actor.log_std.bias"]}
    return {f"{last}/{x}": np.concatenate([arrays[f"{last}/{x}"], y], -1) for x, y in parts.items()}


def _activation(path: Path, settings: Mapping[str, Any], default: str) -> str:
    """Return the activation between layers; raise Mistake for one that Sterling does not have."""
    kwargs = settings.get("policy_kwargs")
    printed = str(kwargs.get("activation_fn", "")) if isinstance(kwargs, dict) else ""
    found = TORCH_ACTIVATION.search(printed)
    name = found[1] if found else default
    if name not in ACTIVATIONS or (printed and not found):
        known = ", ".join(ACTIVATIONS)
        raise Mistake(f"{path} has the activation {name if found else printed}. Sterling reads "
                      f"{known}.")  # fmt: skip
    return ACTIVATIONS[name]
