"""Algorithms of every kind can be exported, without a line of their own for it: a policy by values,
by flow matching, of an ensemble, of a model, of a population."""

import deployed_worlds as worlds
import pytest

from sterling.algorithms import ALGORITHMS
from sterling.deploy.export_policy import export_policy

FIELDS = {"openes": {"width": 16, "limit": 8}}
NAMES = ("edac", "fql", "iql", "mbpo", "openes", "td3")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_export_policy_supports_algorithms_of_every_kind(name, tmp_path):
    assert name in ALGORITHMS
    run = worlds.new_run(name, "Pendulum-v1", **FIELDS.get(name, {}))
    for suffix in (".npz", ".onnx", ".c"):
        path = tmp_path / f"policy{suffix}"
        made = export_policy(run, path, sample=name == "fql", steps=12)
        assert made.agreement.largest < 1e-4
