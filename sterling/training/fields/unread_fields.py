"""Refuse a field that has no effect because another field switches off what it belongs to.

``kl_coef=0.04`` with ``kl=none`` would train without any KL and say nothing. Only what a user gives
is checked: defaults and presets may hold numbers of parts that are off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from sterling import algorithms
from sterling.types import Mistake

OWN_MODULES = "sterling.algorithms."  # a user's algorithm may use the same names differently
LIMITED = ("clip", "dual", "cispo")  # rules of the policy gradient that read low and high


@dataclasses.dataclass(frozen=True)
class Switch:
    """A part of an algorithm that can be off, the fields that only this part reads, and what to
    type to switch it on."""

    fields: tuple[str, ...]
    names: tuple[str, ...]  # of the fields that decide; Configs without them have no such part
    is_on: Callable[[Any], bool]  # of the Config
    remedy: str

    def is_off(self, config: Any) -> bool:
        """Whether the Config has this part, and it is off."""
        return all(hasattr(config, name) for name in self.names) and not self.is_on(config)


SWITCHES = (
    Switch(("kl_coef", "kl_in", "reset"), ("kl",), lambda x: x.kl != "none", "kl=k3 (--kl k3)"),
    Switch(("dual",), ("rule",), lambda x: x.rule == "dual", "rule=dual (--rule dual)"),
    Switch(("low", "high"), ("rule",), lambda x: x.rule in LIMITED, "rule=clip (--rule clip)"),
    Switch(("level",), ("rule",), lambda x: x.rule != "reinforce", "rule=clip (--rule clip)"),
    Switch(("cap",), ("decoupled",), lambda x: x.decoupled, "decoupled=True (--decoupled)"),
    Switch(
        ("lam", "value_lr"),
        ("baseline",),
        lambda x: x.baseline == "critic",
        "baseline=critic (--baseline critic)",
    ),
    Switch(
        ("gamma",),
        ("turns", "baseline", "scale"),
        lambda x: x.turns > 0 or x.baseline == "critic" or x.scale == "tokens",
        "turns=N (--turns N) or baseline=critic (--baseline critic)",
    ),
    Switch(("smoothing",), ("loss",), lambda x: x.loss == "dpo", "loss=dpo (--loss dpo)"),
    Switch(("per_token",), ("loss",), lambda x: x.loss == "ipo", "loss=ipo (--loss ipo)"),
    Switch(("margin",), ("loss",), lambda x: x.loss == "simpo", "loss=simpo (--loss simpo)"),
    Switch(
        ("desirable", "undesirable"),
        ("loss",),
        lambda x: x.loss == "kto",
        "loss=kto (--loss kto)",
    ),
    Switch(
        ("correction", "eta"),
        ("priority",),
        lambda x: bool(x.priority),
        "priority=0.6 (--priority 0.6)",
    ),
    Switch(
        ("target_entropy",),
        ("tune_alpha",),
        lambda x: x.tune_alpha,
        "tune_alpha=True (--tune-alpha)",
    ),
    Switch(
        ("horizon_updates",),
        ("n_step_final", "gamma_initial"),
        lambda x: bool(x.n_step_final) or x.gamma_initial is not None,
        "n_step_final=N (--n-step-final N) or gamma_initial=X (--gamma-initial X)",
    ),
    Switch(("subpixel",), ("shift",), lambda x: x.shift > 0, "shift=4 (--shift 4)"),
)
OFF_VALUES = {  # that ask for nothing, so that they are right where the part is off
    **{"kl_coef": 0.0, "reset": 0, "correction": 0.0, "target_entropy": None},
    **{"smoothing": 0.0, "per_token": False, "desirable": 1.0, "undesirable": 1.0},
}


def check_effect(module: Any, algorithm: str, config: Any, given: Mapping[str, Any]) -> None:
    """Raise :class:`Mistake` for a field in ``given`` that the algorithm does not read with this
    Config, naming the field that would have to change."""
    for name, value in given.items():
        if why := missing_effect(module, config, name, value):
            raise Mistake(f"{algorithm}: {why}")


def idle_fields(algorithm: str, fields: Mapping[str, Any]) -> list[str]:
    """Return which of all fields of a Config, given by name, have no effect beside the others."""
    if algorithm not in algorithms.ALGORITHMS:
        return []
    module, config = algorithms.find(algorithm), SimpleNamespace(**fields)
    return [name for name, value in fields.items() if missing_effect(module, config, name, value)]


def missing_effect(module: Any, config: Any, name: str, value: Any) -> str:
    """Return why a field with this value has no effect, and what to do; "" if it may have one."""
    asks_nothing = name in OFF_VALUES and value == OFF_VALUES[name]
    if asks_nothing or not getattr(module, "__name__", "").startswith(OWN_MODULES):
        return ""
    for switch in SWITCHES:
        if name in switch.fields and switch.is_off(config):
            off = ", ".join(f"{each}={getattr(config, each)}" for each in switch.names)
            return (f"{name}={value} has no effect with {off}. "
                    f"Add {switch.remedy}, or leave out {name}.")  # fmt: skip
    return ""
