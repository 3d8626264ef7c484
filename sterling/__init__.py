"""Sterling: one reinforcement-learning system for every source of experience.

>>> import sterling
>>> run = sterling.train("ppo", "CartPole-v1", steps=100_000, seeds=5)
>>> run.result["final"]["return"]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sterling.collector import resting

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sterling.data import Dataset
    from sterling.envs.workers import WorldFailed
    from sterling.experience.layers import Layer
    from sterling.training.api import resume, train
    from sterling.training.trained import TrainedRun, load
    from sterling.types import Mistake

__all__ = ["Dataset", "Layer", "Mistake", "TrainedRun", "WorldFailed", "load", "resume", "train"]

_HOME = {name: "sterling.training.api" for name in __all__}
_HOME |= {"Mistake": "sterling.types", "Dataset": "sterling.data"}
_HOME |= {"WorldFailed": "sterling.envs.workers", "Layer": "sterling.experience.layers"}


def __getattr__(name: str) -> Any:  # JAX is only imported once something needs it
    if name in _HOME:
        with resting():
            return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sterling' has no attribute {name!r}")


def __dir__() -> list[str]:  # what a shell offers to complete
    return [*__all__, "__version__"]
