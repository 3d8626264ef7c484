"""Algorithms: one readable file each, grouped by the setting they learn in."""

from __future__ import annotations

import json
from importlib import import_module, resources
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sterling.naming import hint

if TYPE_CHECKING:
    from sterling.types import Algorithm

# names of the policy gradient of text with certain switches, which named.json lists
NAMED = (
    *("cispo", "dapo", "dr-grpo", "expert-iteration", "grpo", "gspo", "lite-ppo", "reinforce"),
    *("reinforce++", "rloo", "token-ppo"),
)

# name -> the file; a new algorithm is added by listing it here
ALGORITHMS = {
    "awac": "sterling.algorithms.offline.awac",
    "bc": "sterling.algorithms.offline.bc",
    "cql": "sterling.algorithms.offline.cql",
    "dqn": "sterling.algorithms.online.dqn",
    "dt": "sterling.algorithms.offline.dt",
    "edac": "sterling.algorithms.offline.edac",
    "fdvl": "sterling.algorithms.offline.fdvl",
    "fql": "sterling.algorithms.offline.fql",
    "iql": "sterling.algorithms.offline.iql",
    "ppo": "sterling.algorithms.online.ppo",
    "ppo-lagrangian": "sterling.algorithms.online.ppo_lagrangian",
    "rebrac": "sterling.algorithms.offline.rebrac",
    "recurrent-ppo": "sterling.algorithms.online.recurrent_ppo",
    "sac": "sterling.algorithms.online.sac",
    "td3": "sterling.algorithms.online.td3",
    "td3bc": "sterling.algorithms.offline.td3bc",
    "xql": "sterling.algorithms.offline.xql",
    "dpo": "sterling.algorithms.language.dpo",
    "reward": "sterling.algorithms.language.reward",
    "sft": "sterling.algorithms.language.sft",
    **dict.fromkeys(NAMED, "sterling.algorithms.language.gradient"),
}


def named(name: str) -> dict[str, Any]:
    """The fields that an algorithm's name stands for, where several share one file."""
    return dict(_named(name).get("fields", {}))


def about(name: str) -> str:
    """What a name stands for in a line, where several share one file; else nothing."""
    return str(_named(name).get("about", ""))


def _named(name: str) -> dict[str, Any]:
    if name not in NAMED:
        return {}
    text = resources.files("sterling.algorithms.language").joinpath("named.json").read_text()
    return dict(json.loads(text)[name])


def find(name: str) -> Algorithm | ModuleType:
    """The algorithm called ``name``; a Mistake with the nearest right name if there is none."""
    if name not in ALGORITHMS:
        from sterling.types import Mistake

        near = hint(name, ALGORITHMS, f"there are {', '.join(ALGORITHMS)}")
        raise Mistake(f"algorithm {name!r} is not known{near}")
    return import_module(ALGORITHMS[name])
