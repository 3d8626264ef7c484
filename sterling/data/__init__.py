"""Datasets of logged experience: load, check, repair, describe, join and relabel them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterling.data.dataset import Dataset as Dataset
    from sterling.data.dataset import Episode as Episode
    from sterling.data.dataset_concatenation import concatenate as concatenate
    from sterling.data.description.dataset_description import Description as Description
    from sterling.data.description.dataset_description import describe as describe
    from sterling.data.description.recommended_learners import Advice as Advice
    from sterling.data.description.recommended_learners import recommend as recommend
    from sterling.data.quality.dataset_check import check as check
    from sterling.data.quality.dataset_check import require_valid as require_valid
    from sterling.data.quality.dataset_findings import Finding as Finding
    from sterling.data.quality.dataset_repair import repair_dataset as repair_dataset
    from sterling.data.recording.recorder import Recorder as Recorder
    from sterling.data.relabel import inverse_actions as inverse_actions
    from sterling.data.relabel import otr as otr
    from sterling.data.tables.table_import import import_table as import_table

_HOME = {
    "Dataset": "sterling.data.dataset",
    "Episode": "sterling.data.dataset",
    "concatenate": "sterling.data.dataset_concatenation",
    "Description": "sterling.data.description.dataset_description",
    "describe": "sterling.data.description.dataset_description",
    "Advice": "sterling.data.description.recommended_learners",
    "recommend": "sterling.data.description.recommended_learners",
    "check": "sterling.data.quality.dataset_check",
    "require_valid": "sterling.data.quality.dataset_check",
    "Finding": "sterling.data.quality.dataset_findings",
    "repair_dataset": "sterling.data.quality.dataset_repair",
    "Recorder": "sterling.data.recording.recorder",
    "inverse_actions": "sterling.data.relabel",
    "otr": "sterling.data.relabel",
    "import_table": "sterling.data.tables.table_import",
}


def __getattr__(name: str) -> Any:  # imports a part only when a name of it is used
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(_HOME)
