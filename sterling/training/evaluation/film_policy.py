"""Film a trained policy in its environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from sterling import random_keys
from sterling.experience.levels.one_level import begin_in_one_level
from sterling.report.live.notebook_html import video_tag
from sterling.report.pictures.policy_video import record_film
from sterling.system.terminal_messages import print_notice
from sterling.training.assembly.build_run import check_has_environment


class Film:
    """A film's file; a notebook shows it as a video."""

    def __init__(self, path: Path):
        self.path = path

    def __repr__(self) -> str:
        return f"Film({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        return video_tag(self.path)


def film_policy(run: Any, path: Path, *, seed: int | None = None, steps: int = 500) -> Film:
    """Film ``steps`` environment steps of one seed's deterministic policy (default: the first
    seed's) into ``path``, an .mp4 or a .gif; ``run`` is a ``TrainedRun``."""
    settings = run.settings
    check_has_environment(settings)
    player = run.player(seed)

    def act(obs: Any) -> Any:
        action = player.act(jax.tree.map(lambda x: x[0], obs))
        return jax.tree.map(lambda x: x[None], action)

    adapt = adapting_reset(player) if run.agent.needs.adapt else None
    number = settings.seeds[run.place(seed)]
    where = settings.environment, settings.env_options
    print_notice(f"filming {steps:,} steps in {settings.name}")
    how: dict[str, Any] = {"notice": player.notice, "adapt": adapt, "steps": steps}
    return Film(record_film(*where, act, path, seed=number, **how))


def adapting_reset(player: Any) -> Callable[[Any, Any], Any]:
    """Return a function that adapts the player to a level that a random key draws, and begins an
    episode in it: the world's state and observation."""

    def reset(world: Any, keys: Any) -> Any:
        levels = random_keys.fold_each(keys, "film-level")
        player.adapt(world, levels)
        state, obs = world.reset(keys)
        return begin_in_one_level(world, state, obs, levels)

    return reset
