"""What a run is asked to be, resolved and checked before anything is built."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib import resources
from typing import Any

from sterling import algorithms
from sterling.naming import hint
from sterling.types import Mistake, Rollouts

STRATEGIES = ("vmap", "map", "processes")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that identifies a run; written to ``config.json``."""

    algorithm: str
    environment: str | Callable[[], Any]  # a name, or a factory of Gymnasium environments
    steps: int  # environment steps per seed
    seeds: tuple[int, ...]
    envs: int  # parallel environments per seed
    strategy: str  # how the seed axis is run: vmap, map or processes
    config: Any  # the algorithm's Config
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    evaluate_episodes: int = 20  # per seed, at the end
    log_every: int = 0  # steps per seed between rows of metrics.jsonl; 0: a hundredth of the run
    checkpoint_minutes: float = 5.0

    @property
    def name(self) -> str:
        """The environment's name."""
        if isinstance(self.environment, str):
            return self.environment
        return getattr(self.environment, "__name__", type(self.environment).__name__)

    @property
    def inside(self) -> str:
        """How the seeds that share a program are run."""
        return "vmap" if self.strategy == "vmap" else "map"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a factory is written as its name."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain["environment"] = self.name
        plain["custom_environment"] = not isinstance(self.environment, str)
        plain["config"] = dataclasses.asdict(self.config)
        return plain

    @classmethod
    def from_json(
        cls, plain: dict[str, Any], environment: Callable[[], Any] | None = None
    ) -> Settings:
        """The inverse; a run on the user's own factory needs that factory again."""
        known = {field.name for field in dataclasses.fields(cls)}
        kept = {name: value for name, value in plain.items() if name in known}
        if plain.get("custom_environment"):
            if environment is None:
                raise Mistake(
                    f"this run used the environment factory {plain['environment']!r}, which is not "
                    "stored; pass it again: sterling.resume(path, environment=factory)"
                )
            kept["environment"] = environment
        module = algorithms.find(plain["algorithm"])
        kept["config"] = module.Config(**plain["config"])
        kept["seeds"] = tuple(plain["seeds"])
        return cls(**kept)


def resolve(
    algorithm: str,
    environment: str | Callable[[], Any],
    *,
    steps: int,
    seeds: int | list[int] | tuple[int, ...] = 1,
    envs: int | None = None,
    strategy: str | None = None,
    preset: bool = True,
    env_options: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    **rest: Any,
) -> Settings:
    """Defaults, then the tuned preset for this environment, then what the caller says.

    Raises Mistake for unknown names, fields of the wrong type, and settings that cannot be.
    """
    module = algorithms.find(algorithm)
    tuned = presets(algorithm, environment) if preset else {}
    default_envs = tuned.pop("envs", None) or _default_envs(module)
    options = {**tuned.pop("env_options", {}), **(env_options or {})}
    config = make_config(module, {**tuned, **(fields or {})}, algorithm)
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) != len(chosen):
        raise Mistake(f"seeds must be at least one, all different; got {seeds}")
    strategy = strategy or "map"
    if strategy not in STRATEGIES:
        raise Mistake(f"strategy {strategy!r} is not known; choose one of {', '.join(STRATEGIES)}")
    envs = default_envs if envs is None else envs
    if envs < 1 or steps < 1:
        raise Mistake(f"steps and envs must be positive; got steps={steps}, envs={envs}")
    settings = Settings(
        algorithm, environment, steps, chosen, envs, strategy, config, options, **rest
    )
    iterations(settings)  # raises where the budget is too small
    return settings


def make_config(module: Any, fields: dict[str, Any], algorithm: str) -> Any:
    """The algorithm's Config with ``fields`` set, names and types checked."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(module.Config)}
    checked = {}
    for name, value in fields.items():
        if name not in kinds:
            near = hint(name, kinds, f"it has {', '.join(kinds)}")
            raise Mistake(f"{algorithm} has no field {name!r}{near}")
        checked[name] = _typed(algorithm, name, kinds[name], value)
    return module.Config(**checked)


def _typed(algorithm: str, name: str, kind: str, value: Any) -> Any:
    """``value`` as the field's type, or a Mistake."""
    right = {
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
    }
    if not right.get(kind, True):
        raise Mistake(f"{algorithm}'s field {name} must be of type {kind}; got {value!r}")
    return float(value) if kind == "float" else value


def presets(algorithm: str, environment: str | Callable[[], Any]) -> dict[str, Any]:
    """Tuned settings for this pair from presets.json, or none."""
    if not isinstance(environment, str):
        return {}
    text = resources.files("sterling.algorithms").joinpath("presets.json").read_text()
    return dict(json.loads(text).get(algorithm, {}).get(environment, {}))


def warmup_steps(settings: Settings) -> int:
    """Steps per seed taken before the first iteration: whole steps of every env."""
    needs = algorithms.find(settings.algorithm).needs(settings.config)
    if isinstance(needs, Rollouts):
        return 0
    return -(-needs.warmup // settings.envs) * settings.envs


def iteration_steps(settings: Settings) -> int:
    """Steps per seed in one collect-and-learn round."""
    needs = algorithms.find(settings.algorithm).needs(settings.config)
    per_env = needs.length if isinstance(needs, Rollouts) else needs.collect
    return per_env * settings.envs


def iterations(settings: Settings) -> int:
    """Rounds that fit into the budget of steps."""
    each, warmup = iteration_steps(settings), warmup_steps(settings)
    count = (settings.steps - warmup) // each
    if count < 1:
        raise Mistake(
            f"steps={settings.steps} is below one iteration of {settings.algorithm}: "
            f"{warmup} warm-up steps and {each} to learn from; ask for at least {warmup + each}"
        )
    return count


def _default_envs(module: Any) -> int:
    """Eight for on-policy rollouts, one for replay."""
    return 8 if isinstance(module.needs(module.Config()), Rollouts) else 1
