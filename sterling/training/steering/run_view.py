"""A run that is being trained, as callbacks see it: its progress and its current policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool

from sterling.training.config.settings import Settings
from sterling.training.evaluation.periodic_evaluation import PeriodicEvaluation
from sterling.training.loop import Run
from sterling.training.phases.phase_sequence import PlannedPhase
from sterling.training.policy_player import Player
from sterling.training.trained_run import TrainedRun


@runtime_checkable
class TrainingRun(Protocol):
    """What a view needs of the driver."""

    settings: Settings
    path: Path | None
    run: Run
    alive: Bool[np.ndarray, "seed"]
    evaluation: PeriodicEvaluation
    phase: int  # from 0 on

    @property
    def step(self) -> int:
        """Return the environment steps per seed so far."""
        ...

    @property
    def update(self) -> int:
        """Return the gradient updates per seed so far."""
        ...

    @property
    def current_phase(self) -> PlannedPhase:
        """Return the current phase."""
        ...


class RunView:
    """What a callback's event can ask of the run: see ``callbacks.SteeredRun``."""

    def __init__(self, driver: TrainingRun):
        self._driver, self.path = driver, driver.path
        self._acting: TrainedRun | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that are trained in this process."""
        return self._driver.settings.seeds

    @property
    def step(self) -> int:
        """Return the environment steps per seed so far."""
        return self._driver.step

    @property
    def update(self) -> int:
        """Return the gradient updates per seed so far."""
        return self._driver.update

    @property
    def iteration(self) -> int:
        """Return the iterations so far."""
        return int(self._driver.run.iteration)

    @property
    def phase(self) -> int:
        """Return the number of the current phase, from 1 on."""
        return self._driver.phase + 1

    def evaluate_returns(self, episodes: int | None) -> list[float | None]:
        """Return the returns per seed of the current policies."""
        driver = self._driver
        how: Any = (driver.current_phase, episodes, driver.alive)
        return driver.evaluation.returns_now(driver.run.agent, *how)

    def player(self, seed: int | None, explore: bool) -> Player:
        """Return a player with the current policy of a seed."""
        agent = jax.device_get(self._driver.run.agent)  # the run's arrays are donated later
        if self._acting is None:
            self._acting = TrainedRun(self._driver.current_phase.settings, agent, {}, self.path)
        self._acting.agent = agent
        return self._acting.player(seed, explore)

    def policy(self, obs: Any, seed: int | None, explore: bool) -> Any:
        """Return the current policy's action for one observation, or the actions for several."""
        agent = self._driver.run.agent
        if not agent.forgetful:
            agent.check_memoryless("use event.player()")
        return self.player(seed, explore)(obs)

    def close(self) -> None:
        """Release the world that the policies act in."""
        if self._acting is not None:
            self._acting.close()
