"""Exported policies choose the run's own actions, in every format, and without Sterling."""

import dataclasses
import functools
import json
import subprocess
import sys
from types import SimpleNamespace

import deployed_worlds as worlds
import jax
import jax.numpy as jnp
import numpy as np
import odd_worlds
import onnx
import onnxruntime
import pytest

import sterling
from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.cli import main
from sterling.deploy.agreement import record_steps
from sterling.deploy.export_policy import LOADER, export_policy
from sterling.deploy.formats import c_operations, onnx_file
from sterling.deploy.formats.c_runner import compiler
from sterling.deploy.graph import primitive_rules
from sterling.deploy.graph.policy_trace import trace_policy
from sterling.deploy.policy_numpy import Policy, arranged, keys
from sterling.training.trained_run import TrainedRun
from sterling.types import Mistake

STEPS = 40
FORMATS = (".npz", ".safetensors", ".onnx", ".c")
CASES = {
    "vector": ("ppo", "CartPole-v1", {}),
    "squashed": ("sac", "Pendulum-v1", {}),
    "memory": ("recurrent-ppo", "Pendulum-v1", {"width": 16, "length": 8, "minibatch": 64}),
    "values": ("r2d2", "CartPole-v1", {"width": 16, "scale": 3.0}),
    "picture": ("ppo", worlds.Pictures, {"width": 16}),
}


@functools.cache
def run_of(case):
    algorithm, world, fields = CASES[case]
    return worlds.new_run(algorithm, world, **fields)


def run_with(scores):
    """A run of CartPole that takes the action with the highest of ``scores(obs, key)``."""

    def act(state, obs, key, explore):
        return jnp.argmax(scores(obs, key), -1), {}

    run = run_of("vector")
    own = SimpleNamespace(Config=ppo.Config, needs=ppo.needs, init=ppo.init, act=act)
    return TrainedRun(run.settings, dataclasses.replace(run.agent, algorithm=own), {}, None)


def split_by_name(key, rows):
    return random_keys.split(key, "row", rows)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_exported_policy_chooses_the_runs_own_actions(case, suffix, tmp_path):
    made = export_policy(run_of(case), tmp_path / f"policy{suffix}", steps=STEPS)
    assert made.path.exists()
    assert (made.agreement.steps, made.agreement.ties) == (STEPS, 0)
    assert made.agreement.largest < (1e-4 if case == "picture" else 1e-5)
    if suffix == ".c":
        assert ("NumPy" in made.checked_with) == (compiler() is None)


@pytest.mark.parametrize("suffix", FORMATS)
def test_names_of_entries_may_hold_separators(suffix, tmp_path):
    """`arm/pos` is one entry, and `a.b` is another than `a_b` in C too."""
    made = export_policy(
        worlds.new_run("ppo", odd_worlds.OddNames), tmp_path / f"p{suffix}", steps=9
    )
    assert made.agreement.steps == 9
    assert made.agreement.largest < 1e-5


def test_actions_are_arranged_by_the_keys_of_their_paths():
    """A name of digits is no place in a tuple; files written before say the path alone."""
    assert arranged({("0",): 1, ("1", 0): 2, ("1", 1): 3}) == {"0": 1, "1": (2, 3)}
    assert arranged({(0,): 1, (1,): 2}) == (1, 2)
    assert arranged({(): 1}) == 1
    assert keys({"path": "a~1b/0", "keys": ["a/b", "0"]}) == ("a/b", "0")
    assert keys({"path": "a~1b/0"}) == ("a/b", 0)


def test_exported_policy_test_cases_choose_varied_actions():
    """Otherwise the test above would say little."""
    for case, kinds in (("vector", 2), ("values", 2), ("picture", 8)):
        rows, _ = record_steps(run_of(case), None, STEPS)
        assert len({row.action.tobytes() for row in rows}) >= kinds


@pytest.mark.parametrize("suffix", [".npz", ".onnx", ".c"])
@pytest.mark.parametrize(("operation", "wrong"), [("tanh", "sin"), ("sub", "add"), ("max", "min")])
def test_export_policy_detects_a_wrong_operation_and_writes_nothing(
    operation, wrong, suffix, tmp_path, monkeypatch
):
    """Each of them is a planted error: a sign, another activation, a clip from the other side."""
    rule = primitive_rules.RULES[operation]
    planted = primitive_rules._elementwise(wrong)
    assert rule is not planted
    monkeypatch.setitem(primitive_rules.RULES, operation, planted)
    with pytest.raises(Mistake, match="was not written: its actions differ"):
        export_policy(run_of("memory"), tmp_path / f"policy{suffix}", steps=STEPS)
    assert list(tmp_path.iterdir()) == []


def test_export_policy_detects_a_wrong_sign_in_a_file_writer(tmp_path, monkeypatch):
    monkeypatch.setitem(c_operations.SIGNS, "sub", "+")
    monkeypatch.setitem(onnx_file.SAME, "sub", "Add")
    for suffix in (".c", ".onnx"):
        if suffix == ".onnx" or compiler() is not None:
            with pytest.raises(Mistake, match="was not written"):
                export_policy(run_of("memory"), tmp_path / f"policy{suffix}", steps=STEPS)
    assert export_policy(run_of("memory"), tmp_path / "policy.npz", steps=STEPS).path.exists()


def test_exported_policy_file_holds_the_agreement(tmp_path):
    run = run_of("squashed")
    for suffix in FORMATS:
        export_policy(run, tmp_path / f"policy{suffix}", steps=STEPS)
    found = [Policy(tmp_path / f"policy{s}").description["metadata"] for s in FORMATS[:2]]
    props = {each.key: each.value for each in onnx.load(tmp_path / "policy.onnx").metadata_props}
    found.append({**props, "agreement": json.loads(props["agreement"])})
    for metadata in found:
        assert metadata["environment"] == "Pendulum-v1"
        assert metadata["agreement"]["steps"] == STEPS
        assert metadata["agreement"]["largest"] < 1e-5
    text = (tmp_path / "policy.c").read_text()
    assert '"steps": 40' in text[:2000]
    assert "Box(-2.0, 2.0" in text[:2000]
    names = Policy(tmp_path / "policy.npz").description["constants"]
    assert {"actor.net.layers.0.weight", "actor.net.layers.0.bias"} <= set(names)


def test_exported_policy_runs_without_sterling_and_jax(tmp_path):
    """In a Python that cannot import them."""
    run, rows = run_of("memory"), []
    export_policy(run, tmp_path / "policy.safetensors", steps=STEPS)
    player, rng = run.player(), np.random.default_rng(0)
    for _ in range(5):
        obs = rng.normal(size=3).astype(np.float32)
        rows.append((obs.tolist(), float(rng.normal()), player(obs).tolist()))
        player.notice(rows[-1][1], False)
    program = f"""
import json, sys
for name in ("sterling", "jax", "jaxlib", "gymnasium", "safetensors", "onnx"):
    sys.modules[name] = None
from policy_numpy import Policy
policy, reward, made = Policy("policy.safetensors"), 0.0, []
policy.reset()
for obs, following, _ in {rows!r}:
    made.append(policy(obs, reward).tolist())
    reward = following
print(json.dumps(made))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(done.stdout), [row[2] for row in rows], atol=1e-5)


def test_exported_policy_answers_batches_as_single_observations(tmp_path):
    rng = np.random.default_rng(1)
    for case, shape in (("squashed", (3,)), ("picture", (3, 12, 12))):
        run = run_of(case)
        export_policy(run, tmp_path / f"{case}.onnx", steps=5)
        export_policy(run, tmp_path / f"{case}.npz", steps=5)
        obs = (
            rng.integers(0, 256, (7, *shape)).astype(np.uint8)
            if case == "picture"
            else rng.normal(size=(7, *shape)).astype(np.float32)
        )
        session = onnxruntime.InferenceSession(tmp_path / f"{case}.onnx")
        (from_onnx,) = session.run(None, {"obs": obs})
        from_numpy = Policy(tmp_path / f"{case}.npz")(obs)
        own = np.stack([run.policy(each) for each in obs])
        np.testing.assert_allclose(from_onnx, own, atol=1e-4)
        np.testing.assert_allclose(from_numpy, own, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_export_policy_supports_unusual_observation_and_action_spaces(suffix, tmp_path):
    for world, algorithm in ((odd_worlds.OddForms, "ppo"), (odd_worlds.WideTorques, "td3")):
        made = export_policy(worlds.new_run(algorithm, world), tmp_path / f"p{suffix}", steps=STEPS)
        assert made.agreement.largest < 1e-5


def test_exported_policy_float64_actions_stay_within_bounds(tmp_path):
    export_policy(worlds.new_run("td3", odd_worlds.WideTorques), tmp_path / "p.npz", steps=5)
    policy, space = Policy(tmp_path / "p.npz"), odd_worlds.WideTorques.action_space
    for obs in 100.0 * np.random.default_rng(0).normal(size=(50, 3)):
        assert space.contains(policy(obs))


def test_sampled_actions_take_their_noise_as_an_input(tmp_path):
    for case in ("squashed", "vector", "memory"):
        made = export_policy(run_of(case), tmp_path / f"{case}.npz", sample=True, steps=STEPS)
        assert made.agreement.largest < 1e-5
        policy = Policy(tmp_path / f"{case}.npz")
        assert [port["role"] for port in policy.description["inputs"]].count("noise") == 1
        obs = np.zeros(4 if case == "vector" else 3, np.float32)
        drawn = []
        for _ in range(2):
            policy.reset(seed=3)
            drawn.append(np.stack([policy(obs) for _ in range(30)]))
        np.testing.assert_array_equal(*drawn)
        assert len(np.unique(drawn[0])) > 1


@pytest.mark.slow
def test_export_policy_refuses_a_sampling_only_policy_without_sample(tmp_path):
    run = worlds.new_run("fql", odd_worlds.WideTorques)
    with pytest.raises(Mistake, match="Add --sample"):
        export_policy(run, tmp_path / "policy.npz", steps=5)
    made = export_policy(run, tmp_path / "policy.npz", sample=True, steps=5)
    assert made.agreement.largest < 1e-4


def test_export_policy_names_an_unsupported_operation():
    with pytest.raises(Mistake, match="operation 'sort'"):
        trace_policy(run_with(lambda obs, key: jnp.sort(obs, -1)))


@pytest.mark.parametrize("split", [jax.random.split, split_by_name], ids=["jax", "sterling"])
def test_exported_policy_may_split_its_key_by_rows(split, tmp_path):
    def scores(obs, key):
        drawn = jax.vmap(lambda each: jax.random.uniform(each, (2,)))(split(key, obs.shape[0]))
        return obs[:, :2] + drawn

    path = tmp_path / "policy.npz"
    assert export_policy(run_with(scores), path, sample=True, steps=5).agreement.largest == 0
    assert [port["law"] for port in Policy(path).description["inputs"][1:]] == ["uniform"]


@pytest.mark.parametrize(
    "scores",
    [
        lambda obs, key: obs * jnp.stack([*jax.random.split(key, obs.shape[0])]).shape[0],
        lambda obs, key: obs + np.zeros(obs.shape, np.float32),
    ],
    ids=["loop", "NumPy"],
)
def test_export_policy_refuses_a_fixed_number_of_rows_by_its_line(scores):
    with pytest.raises(Mistake, match=r"number of rows .*\(test_export_policy.py:\d+\).*jax.vmap"):
        trace_policy(run_with(scores), sample=True)


def test_export_policy_refuses_numbered_rows():
    with pytest.raises(Mistake, match="numbers the rows"):
        trace_policy(
            run_with(lambda obs, key: obs + jnp.arange(obs.shape[0], dtype=obs.dtype)[:, None])
        )


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_exported_c_source_compiles_without_warnings_and_runs(tmp_path):
    run = run_of("memory")
    export_policy(run, tmp_path / "policy.c", steps=5)
    (tmp_path / "main.c").write_text(
        """
#include <stdio.h>
#include "policy.c"
int main(void) {
  policy_state state;
  policy_reset(&state);
  for (int t = 0; t < 3; t++) {
    float obs[3] = {0.1f * (float)t, -0.5f, 1.0f}, action[1];
    policy(obs, t ? -1.5f : 0.0f, &state, action);
    printf("%.9g\\n", (double)action[0]);
  }
  return 0;
}
"""
    )
    words = [compiler(), "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O3", "main.c"]
    subprocess.run([*words, "-o", "main", "-lm"], cwd=tmp_path, check=True)
    assert "malloc" not in (tmp_path / "policy.c").read_text()
    said = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    player, expected = run.player(), []
    for t in range(3):
        expected.append(float(player(np.array([0.1 * t, -0.5, 1.0], np.float32))[0]))
        player.notice(-1.5, False)
    np.testing.assert_allclose([float(x) for x in said.stdout.split()], expected, atol=1e-5)


def test_export_command_reports_the_agreement_and_refuses_mistakes(tmp_path, capsys):
    out = tmp_path / "run"
    sterling.train("ppo", "CartPole-v1", steps=256, envs=2, length=64, seeds=2, out=out,
                   width=8, minibatch=64, epochs=1, evaluate_episodes=0)  # fmt: skip
    capsys.readouterr()
    words = ["export", str(out), str(tmp_path / "policy.npz"), "--seed", "1", "--steps", "20"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "20 steps in CartPole-v1 agree; largest difference 0" in said
    assert (tmp_path / LOADER).exists()
    wrong = {
        ("policy.npz",): "exists. Add --overwrite",
        ("policy.pt",): "Use one of .onnx, .npz, .safetensors, .c",
        ("other.npz", "--seed", "7"): "the run has no seed 7",
        ("other.npz", "--steps", "0"): "at least 1 step",
        ("other.npz", "--adapters"): "so --adapters has no meaning",
    }
    for more, line in wrong.items():
        assert main(["export", str(out), str(tmp_path / more[0]), *more[1:]]) == 2
        assert line in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    policy, run = Policy(tmp_path / "policy.npz"), sterling.load(out)
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_array_equal(policy(obs), [run.policy(one, seed=1) for one in obs])
