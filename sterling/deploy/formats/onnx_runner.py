"""Run an ONNX policy: with ONNX Runtime, or else with the reference of the package onnx."""

from __future__ import annotations

from typing import Any

from sterling.deploy.agreement import Runner
from sterling.deploy.formats.onnx_file import import_onnx


def onnx_runner(model: bytes) -> tuple[Runner, str]:
    """Return a function from inputs by name to outputs by name, and the program that runs it."""
    session: Any
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session, name = ReferenceEvaluator(import_onnx().load_from_string(model)), "onnx"
        outputs = list(session.output_names)
    else:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        name = f"ONNX Runtime {onnxruntime.__version__}"
        outputs = [each.name for each in session.get_outputs()]

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(outputs, session.run(None, inputs), strict=True))

    return run, name
