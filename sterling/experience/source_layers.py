"""Layers: the sources that the setting ``sources`` can put around a run's source.

A file that implements one offers a :class:`Layer` under the name ``LAYER``; packages register
theirs as entry points of the group ``sterling.sources``. training/assembly/build_sources.py builds
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from sterling.actor import Actor
from sterling.config_class import RULES_ATTRIBUTE
from sterling.system.shown_values import shown_value
from sterling.types import Mistake, config


@config
class NoOptions:
    """The options of a layer that has none."""


def _unchanged_rollouts(source: Any, config: Any, keys: Key[Array, "seed"], actor: Actor) -> Any:
    return source


def _unchanged_source(source: Any, config: Any) -> Any:
    return source


@dataclasses.dataclass(frozen=True)
class Layer:
    """Describes what ``WORD``, ``WORD:VALUE,VALUE`` or ``WORD:NAME=VALUE`` puts around a run's
    source; ``Config`` holds its options, as an algorithm's does.

    ``rollouts(source, config, keys, actor)`` wraps the rollout, inside a replay buffer if there is
    one; ``whole(source, config)`` wraps the whole source. Either may be left out. A replay buffer
    stores the extras named in ``keep``. Raise Mistake if ``Config`` is not a class of options.
    """

    word: str
    help: str  # one line
    Config: type = NoOptions
    rollouts: Callable[[Any, Any, Key[Array, "seed"], Actor], Any] = _unchanged_rollouts
    whole: Callable[[Any, Any], Any] = _unchanged_source
    keep: tuple[str, ...] = ()
    begins: bool = False  # whether it decides where episodes begin; only one layer may

    def __post_init__(self) -> None:
        if not (isinstance(self.Config, type) and hasattr(self.Config, RULES_ATTRIBUTE)):
            raise Mistake(
                f"the layer {self.word} has the Config {shown_value(self.Config)}. Give a class "
                "of its options, decorated with sterling.types.config (docs/extending.md)"
            )

    @property
    def example(self) -> str:
        """The word with its options' default values, by position and by name; "" without any."""
        values = {name: str(x).lower() for name, x in vars(self.Config()).items()}
        named = ",".join(f"{name}={x}" for name, x in values.items())
        plain = ",".join(values.values())
        return f"{self.word}:{plain} or {self.word}:{named}" if values else ""
