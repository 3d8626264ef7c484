"""Sterling: one reinforcement-learning system for every source of experience.

>>> import sterling
>>> run = sterling.train("ppo", "CartPole-v1", steps=100_000, seeds=5)
>>> run.result["final"]["return"]
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sterling.system.garbage_collector import freeze_at_exit, gc_paused
from sterling.version import __version__ as __version__

if TYPE_CHECKING:
    from sterling import report as report
    from sterling import schedules as schedules
    from sterling.data import Dataset
    from sterling.envs.episode_starts import Start
    from sterling.envs.hosted.worker_pool import WorldFailed
    from sterling.evaluation.compare_runs import compare
    from sterling.evaluation.evaluate_run import evaluate
    from sterling.experience.levels.start_rollout import chosen_by
    from sterling.experience.source_layers import Layer
    from sterling.system.away_errors import Away
    from sterling.system.mistake import Mistake
    from sterling.training.api import resume, train
    from sterling.training.steering.callbacks import Callback, Event
    from sterling.training.trained_run import TrainedRun, load
    from sterling.tuning.tuning_api import tune

__all__ = [
    "Away", "Callback", "Dataset", "Event", "Layer", "Mistake", "Start", "TrainedRun",
    "WorldFailed", "chosen_by", "compare", "evaluate", "load", "report", "resume", "train", "tune",
]  # fmt: skip

_HOME = {name: "sterling.training.api" for name in __all__}
_HOME |= {"Mistake": "sterling.system.mistake", "Dataset": "sterling.data"}
_HOME |= {
    "Away": "sterling.system.away_errors",
    "WorldFailed": "sterling.envs.hosted.worker_pool",
    "Layer": "sterling.experience.source_layers",
    "Start": "sterling.envs.episode_starts",
    "chosen_by": "sterling.experience.levels.start_rollout",
    "compare": "sterling.evaluation.compare_runs",
    "evaluate": "sterling.evaluation.evaluate_run",
    "tune": "sterling.tuning.tuning_api",
}


def __getattr__(name: str) -> Any:  # imports JAX only when a name is used
    if name in _HOME:
        freeze_at_exit()
        with gc_paused():
            return getattr(import_module(_HOME[name]), name)
    if not name.startswith("_"):
        if find_spec(f"sterling.{name}"):  # report can be called, too
            return import_module(f"sterling.{name}")
        if said := _peer_call(name):  # `from sterling import PPO` drops an AttributeError's text
            imported = sys._getframe(1).f_code.co_name == "_handle_fromlist"
            raise (ImportError if imported else AttributeError)(f"sterling has no {name!r}{said}")
    raise AttributeError(f"module 'sterling' has no attribute {name!r}")


def _peer_call(name: str) -> str:
    """Return what to write for a name of another library, as the end of a message; "" if no library
    has it."""
    from sterling.algorithms import train_call
    from sterling.lookup.peer_names import unknown_call

    trained = train_call(name)
    return unknown_call(name) or (f": write {trained}" if trained else "")


def __dir__() -> list[str]:  # names that shells complete
    return [*__all__, "__version__", "schedules"]
