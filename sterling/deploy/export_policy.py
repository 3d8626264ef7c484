"""Export a trained control policy to one file: .onnx, .npz, .safetensors or .c."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sterling.deploy import policy_numpy
from sterling.deploy.agreement import (
    DEFAULT_STEPS,
    TOLERANCE,
    Agreement,
    Runner,
    compare_actions,
    numpy_policy,
    record_steps,
    sampled_actions,
)
from sterling.deploy.formats.c_runner import c_runner, compiler
from sterling.deploy.formats.c_source import c_source
from sterling.deploy.formats.onnx_file import onnx_model
from sterling.deploy.formats.onnx_runner import onnx_runner
from sterling.deploy.formats.tensor_files import write_npz, write_safetensors
from sterling.deploy.graph.constant_names import with_parameter_names
from sterling.deploy.graph.policy_graph import PolicyGraph
from sterling.deploy.graph.policy_trace import trace_policy
from sterling.deploy.graph.world_conversion import env_action_space
from sterling.system.atomic_files import atomic_write, check_writable, explain_write_errors
from sterling.training.trained_run import TrainedRun
from sterling.types import Mistake
from sterling.version import __version__

LOADER = "policy_numpy.py"


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written, and how its actions compare with the run's own."""

    path: Path
    agreement: Agreement
    checked_with: str  # the program that ran the file

    def __str__(self) -> str:
        found = self.agreement
        ties = f", {found.ties} choices between equal scores differ" if found.ties else ""
        return (
            f"{self.path}: {found.steps} steps in {found.source} agree; largest difference "
            f"{found.largest:.2g}{ties} (checked with {self.checked_with})"
        )


def export_policy(
    run: TrainedRun,
    path: str | Path,
    *,
    seed: int | None = None,
    sample: bool = False,
    steps: int = DEFAULT_STEPS,
    tolerance: float = TOLERANCE,
) -> Exported:
    """Write one seed's policy (default: the first) to ``path``, whose suffix says the format:
    .onnx, .npz, .safetensors or .c. Normalisation of observations and scaling of actions are part
    of the file.

    The file's actions are compared with the run's own in ``steps`` steps of its environment, and
    the largest difference is written into the file. Raise :class:`Mistake`, and write nothing, if
    it is above ``tolerance`` (relative for actions above 1).
    """
    path = Path(path)
    if path.suffix not in WRITERS:
        known = ", ".join(WRITERS)
        raise Mistake(f"{path.name}: the format follows from the suffix. Use one of {known}.")
    if steps < 1:
        raise Mistake(f"steps={steps}: give at least 1 step to compare actions in.")
    check_writable(path)
    graph = with_parameter_names(trace_policy(run, seed, sample), run.agent.state, run.place(seed))
    rows, source = record_steps(run, seed, steps)
    metadata = _metadata(run, seed, sample, graph)
    draft = WRITERS[path.suffix](graph, metadata)
    runner, checked_with = draft.runner()
    agreement = compare_actions(
        graph, runner, rows, source, sampled_actions(run, seed) if sample else None
    )
    if not agreement.largest <= tolerance:
        raise Mistake(
            f"{path} was not written: its actions differ from the run's own by up to "
            f"{agreement.largest:.3g}, and at most {tolerance:g} is allowed."
        )
    metadata["agreement"] = {**agreement.to_json(), "checked_with": checked_with}
    with explain_write_errors(path), atomic_write(path) as partial:
        draft.write(partial, metadata)
    if path.suffix in (".npz", ".safetensors"):
        _copy_loader(path.parent)
    return Exported(path, agreement, checked_with)


def _copy_loader(folder: Path) -> None:
    """Write the loader beside the file, for machines without Sterling."""
    with explain_write_errors(folder / LOADER), atomic_write(folder / LOADER) as partial:
        shutil.copyfile(policy_numpy.__file__, partial)


def _metadata(
    run: TrainedRun, seed: int | None, sample: bool, graph: PolicyGraph
) -> dict[str, Any]:
    settings = run.settings
    world = run.world()
    return {
        **{"made_by": f"sterling {__version__}", "algorithm": settings.algorithm},
        **{"environment": settings.name, "seed": settings.seeds[run.place(seed)]},
        **{"sampled": sample, "parameters": graph.parameters},
        "stack": int(getattr(world, "stack", 1)),  # frames that an observation consists of
        "action_space": str(env_action_space(world)),
    }


class _TensorDraft:
    """A policy as arrays with a description."""

    def __init__(self, graph: PolicyGraph, metadata: dict[str, Any]):
        self.graph, self.metadata = graph, metadata

    def runner(self) -> tuple[Runner, str]:
        """Return what runs the policy, and its name."""
        return numpy_policy(self.graph, self.metadata).run, "NumPy"


class _NpzDraft(_TensorDraft):
    def write(self, path: Path, metadata: dict[str, Any]) -> None:
        """Write the file."""
        write_npz(path, self.graph, metadata)


class _SafetensorsDraft(_TensorDraft):
    def write(self, path: Path, metadata: dict[str, Any]) -> None:
        """Write the file."""
        write_safetensors(path, self.graph, metadata)


class _OnnxDraft:
    """A policy as an ONNX model."""

    def __init__(self, graph: PolicyGraph, metadata: dict[str, Any]):
        self.graph, self.model = graph, onnx_model(graph, metadata)

    def runner(self) -> tuple[Runner, str]:
        """Return what runs the policy, and its name."""
        return onnx_runner(self.model.SerializeToString())

    def write(self, path: Path, metadata: dict[str, Any]) -> None:
        """Write the file."""
        path.write_bytes(onnx_model(self.graph, metadata).SerializeToString())


class _CDraft:
    """A policy as a C file."""

    def __init__(self, graph: PolicyGraph, metadata: dict[str, Any]):
        self.graph, self.metadata = graph, metadata

    def runner(self) -> tuple[Runner, str]:
        """Return what runs the policy, and its name; without a C compiler, NumPy."""
        if compiler() is None:
            runner = numpy_policy(self.graph, self.metadata).run
            return runner, "NumPy, because no C compiler was found"
        return c_runner(c_source(self.graph, ""), self.graph)

    def write(self, path: Path, metadata: dict[str, Any]) -> None:
        """Write the file."""
        path.write_text(c_source(self.graph, _comment(metadata)))


def _comment(metadata: dict[str, Any]) -> str:
    lines = [f"{key}: {x if isinstance(x, str) else json.dumps(x)}" for key, x in metadata.items()]
    return "\n".join(["A control policy.", *lines])


WRITERS: dict[str, Callable[[PolicyGraph, dict[str, Any]], Any]] = {
    **{".onnx": _OnnxDraft, ".npz": _NpzDraft, ".safetensors": _SafetensorsDraft, ".c": _CDraft},
}
