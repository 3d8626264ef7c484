"""Runs that start from models of Stable-Baselines3 and from safetensors files.

How the models in ``sb3/`` were made, and what they answered: ``sb3/make_models.py``.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import sterling
from sterling.cli import main
from sterling.lookup import user_imports
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.config_file import read_config_file
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.saving import checkpoint, run_folder
from sterling.training.warm_start.init_word import check_same_files, resolve_init
from sterling.training.warm_start.torch_tensors import read_tensors
from sterling.types import Mistake

MODELS = Path(__file__).parent / "sb3"
some_pictures = user_imports.load(f"{MODELS / 'small_worlds.py'}:some_pictures")
PREDICTED = json.loads((MODELS / "actions.json").read_text())
OBS = np.float32(PREDICTED["obs"])
PPO = {"length": 8, "minibatch": 16, "normalise_obs": False}
OFF = {"warmup": 8, "batch": 8}
OWN = {"ppo": PPO, "a2c": {"length": 8}}


def begin(algorithm, init, world="boxes", seeds=1, **fields):
    """Return a run at its first iteration, before any update."""
    small = {"width": 8, **OWN.get(algorithm, OFF), **fields}
    settings = resolve_settings(
        algorithm, f"{MODELS / 'small_worlds.py'}:{world}", steps=64, seeds=seeds, envs=4,
        preset=False, fields=small, init=resolve_init(init, range(seeds)),
    )  # fmt: skip
    run = build_first_phase(settings)
    run.source.close()
    return run


def actions(run, world, obs=OBS):
    keys = jax.random.split(jax.random.key(0), 1)
    found = np.asarray(run.agent.act(obs[None], keys, False)[0][0])
    if world.endswith("choices"):
        return found
    low, high = np.float32([-1.0, 0.0]), np.float32([3.0, 0.5])
    return low + (np.clip(found, -1.0, 1.0) + 1.0) / 2.0 * (high - low)


@pytest.mark.parametrize(
    ("model", "algorithm", "world", "took"),
    [
        ("ppo", "ppo", "boxes", "policy (7 of 7 arrays)"),
        ("ppo-choices", "ppo", "choices", "policy (6 of 7 arrays)"),
        ("a2c", "ppo", "boxes", "policy (7 of 7 arrays)"),
        ("a2c", "a2c", "boxes", "policy (7 of 7 arrays)"),
        ("sac", "sac", "boxes", "critics (12 of 12 arrays), target (12 of 12 arrays), log_alpha"),
        ("td3", "td3", "boxes", "critics (12 of 12 arrays), target (18 of 18 arrays)"),
        ("dqn", "dqn", "choices", "advantage (6 of 6 arrays), target (6 of 6 arrays)"),
        ("sac", "td3", "boxes", "policy (6 of 6 arrays), critics (12 of 12 arrays)"),
    ],
)
def test_policies_act_as_stable_baselines_predicted(model, algorithm, world, took, capsys):
    run = begin(algorithm, MODELS / f"{model}.zip", world)
    assert took in capsys.readouterr().out
    wanted = np.asarray(PREDICTED["actions"][model])
    assert np.std(wanted) > 0
    np.testing.assert_allclose(actions(run, world), wanted, atol=1e-5)


def normalised(run):
    statistics = jax.tree.map(lambda x: x[0], run.agent.state.obs_statistics)
    return np.asarray(statistics(jnp.asarray(OBS)))


def test_the_statistics_of_vec_normalize_are_read(capsys):
    """Its epsilon is 1e-3 there, and 1e-8 here."""
    both = f"{MODELS / 'ppo-normalised.zip'}+{MODELS / 'ppo-normalised.pkl'}"
    run = begin("ppo", both, normalise_obs=True)
    line = capsys.readouterr().out
    assert (
        "with ppo-normalised.pkl took policy (7 of 7 arrays), value (6 of 6 arrays), obs_stat"
        in line
    )
    assert "reward_statistics" in line
    wanted = PREDICTED["normalised"]["ppo-normalised"]
    np.testing.assert_allclose(normalised(run), wanted, atol=1e-5)
    wanted = np.asarray(PREDICTED["actions"]["ppo-normalised"])
    np.testing.assert_allclose(actions(run, "boxes"), wanted, atol=1e-5)
    moments = run.agent.state.reward_statistics.moments
    assert 100 < float(moments.count[0]) < 300
    assert float(moments.variance[0]) > 1.0


@pytest.mark.parametrize(("model", "algorithm"), [("sac", "sac"), ("ppo", "ppo")])
def test_sb3_vec_normalize_is_folded_into_agents_without_normalisation(model, algorithm, capsys):
    name = f"{model}-normalised"
    run = begin(algorithm, f"{MODELS / name}.zip+{MODELS / name}.pkl")
    assert "obs_statistics (folded into the first layers)" in capsys.readouterr().out
    np.testing.assert_allclose(actions(run, "boxes"), PREDICTED["actions"][name], atol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "world"), [("ppo", "boxes"), ("a2c", "boxes"), ("dqn", "choices")]
)
def test_sb3_image_policies_act_as_stable_baselines_predicted(algorithm, world, capsys):
    name = {"dqn": "dqn-pictures"}.get(algorithm, "ppo-pictures")
    run = begin(algorithm, MODELS / f"{name}.zip", f"picture_{world}", width=6)
    assert "torso (6 of 6 arrays)" in capsys.readouterr().out
    seen, wanted = some_pictures(), np.asarray(PREDICTED["actions"][name])
    np.testing.assert_allclose(actions(run, world, seen), wanted, atol=1e-5)
    if algorithm == "dqn":
        net, target = (jax.tree.map(lambda x: x[0], each) for each in
                       (run.agent.state.net, run.agent.state.target))  # fmt: skip
        np.testing.assert_allclose(net(jnp.asarray(seen)), PREDICTED["values"], atol=1e-5)
        assert np.abs(net(jnp.asarray(seen)) - target(jnp.asarray(seen))).max() > 1e-2


class Damaged(dict):
    pass


@pytest.mark.slow
def test_vec_normalize_pickle_runs_no_code(tmp_path):
    path = tmp_path / "statistics.pkl"
    both = f"{MODELS / 'ppo-normalised.zip'}+{path}"
    genuine = (MODELS / "ppo-normalised.pkl").read_bytes()
    wrong = {
        pickle.dumps(Evil(tmp_path / "made")): r"asks for (posix|nt)\.mkdir, which no VecNormalize",
        pickle.dumps(Damaged()): r"asks for .*Damaged, which no VecNormalize file needs",
        pickle.dumps({"obs_rms": 1}): "it holds something else",
        genuine[:500]: "or damaged",
        genuine.replace(b"obs_rms", b"obs_rmx"): "or damaged",
        genuine.replace(b"f8", b"O8"): "the type O8, which is no number",
        b"": "or damaged",
    }
    for content, message in wrong.items():
        path.write_bytes(content)
        with pytest.raises(Mistake, match=message) as caught:
            begin("ppo", both, normalise_obs=True)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "made").exists()


def test_vec_normalize_file_needs_a_model_and_must_not_change(tmp_path):
    pickled = shutil.copy(MODELS / "ppo-normalised.pkl", tmp_path / "statistics.pkl")
    with pytest.raises(Mistake, match=r"holds no networks.*model\.zip\+"):
        resolve_init(pickled, [0])
    with pytest.raises(Mistake, match=r"there is no file .*none\.zip"):
        resolve_init(tmp_path / "none.zip", [0])
    with pytest.raises(Mistake, match=r"there is no file .*none\.pkl"):
        resolve_init(f"{MODELS / 'ppo.zip'}+{tmp_path / 'none.pkl'}", [0])
    init = resolve_init(f"{MODELS / 'ppo-normalised.zip'}+{pickled}", [0])
    shutil.copy(MODELS / "sac-normalised.pkl", pickled)
    with pytest.raises(Mistake, match=r"statistics\.pkl has changed since"):
        check_same_files(init)


def test_vec_normalize_run_can_be_shown_and_reproduced_from_its_config(tmp_path, capsys):
    both = f"{MODELS / 'ppo-normalised.zip'}+{MODELS / 'ppo-normalised.pkl'}"
    world = f"{MODELS / 'small_worlds.py'}:boxes"
    how = {"steps": 64, "envs": 4, "width": 8, "preset": False, "evaluate_episodes": 1}
    sterling.train("ppo", world, init=both, out=tmp_path / "run", **PPO, **how)
    assert read_config_file(tmp_path / "run" / "config.json")["init"] == both
    assert main(["show", str(tmp_path / "run")]) == 0
    assert "ppo-normalised.pkl" in capsys.readouterr().out


@pytest.mark.slow
def test_run_started_from_sb3_trains_and_is_evaluated(tmp_path):
    how = {"steps": 64, "envs": 4, "width": 8, "seeds": 2, "preset": False, "evaluate_episodes": 1}
    world = f"{MODELS / 'small_worlds.py'}:choices"
    model = shutil.copy(MODELS / "dqn.zip", tmp_path / "dqn.zip")
    run = sterling.train("dqn", world, init=model, out=tmp_path / "run", **OFF, **how)
    Path(model).unlink()
    assert run.result["steps"] == 56  # 8 of warm-up, and whole iterations of 16
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["init"]
    assert (Path(stored["path"]).name, stored["seeds"]) == ("dqn.zip", {})
    assert sterling.load(tmp_path / "run").result["final"] == run.result["final"]


@pytest.mark.parametrize(
    ("algorithm", "model", "world", "fields", "message"),
    [
        ("sac", "sac", "boxes", {"width": 16}, "layers of 8,8 units, and this run's of 16,16. Set "
                                               "--width 8 --depth 2"),
        ("sac", "sac", "boxes", {"depth": 3}, "Set --width 8 --depth 2"),
        ("sac", "uneven", "boxes", {}, "hidden layers of 8,6 units"),
        ("ppo", "relu", "boxes", {}, "the activation relu, and this run's tanh. Set --activation"),
        ("ppo", "ppo", "choices", {}, "3 inputs and 2 outputs, and in .* there are 3 and 3"),
        ("ppo", "ppo", "boxes", {"normalise_obs": True}, "Add --no-normalise-obs"),
        ("dqn", "ppo-choices", "choices", {}, "nothing of .* fits"),
        ("ppo", "ppo-pictures", "picture_boxes", {"width": 8}, "of 6 units, and this run's of 8"),
        ("ppo", "ppo-pictures", "boxes", {"width": 6}, "384 inputs and 2 outputs"),
    ],
)  # fmt: skip
def test_sb3_model_mismatch_names_the_options_to_set(algorithm, model, world, fields, message):
    with pytest.raises(Mistake, match=message) as caught:
        begin(algorithm, MODELS / f"{model}.zip", world, **fields)
    assert "\n" not in str(caught.value)


def test_sb3_image_model_of_another_architecture_is_refused(tmp_path):
    for names, message in REFUSED.items():
        path = with_policy(tmp_path, "policy.pth", torch_file(tensors_of(names), [bytes(16)]))
        with pytest.raises(Mistake, match=message) as caught:
            begin("ppo", path)
        assert "\n" not in str(caught.value)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def with_policy(tmp_path, name, content, model="ppo"):
    """Write a model's zip with one member replaced, and return its path."""
    path = tmp_path / "changed.zip"
    with zipfile.ZipFile(MODELS / f"{model}.zip") as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for each, held in (members | {name: content}).items():
            archive.writestr(each, held)
    return path


def torch_file(pickled, storages=()):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for number, content in enumerate(storages):
            archive.writestr(f"archive/data/{number}", content)
    return made.getvalue()


def test_torch_pickle_that_runs_code_is_refused(tmp_path):
    content = torch_file(pickle.dumps(OrderedDict(weight=Evil(tmp_path / "made"))))
    path = with_policy(tmp_path, "policy.pth", content)
    with pytest.raises(Mistake, match=r"asks for .*mkdir, which is no tensor and is not run"):
        begin("ppo", path)
    assert not (tmp_path / "made").exists()


def stored_tensor(size, strides, offset=0):
    """Return a pickle as torch writes one for a tensor, in the text of pickle's first protocol."""
    numbers = ["(" + "".join(f"I{each}\n" for each in row) + "t" for row in (size, strides)]
    words = ["ctorch._utils\n_rebuild_tensor_v2\n", "((Vstorage\n", "ctorch\nFloatStorage\n",
             "V0\nVcpu\nI4\ntQ", f"I{offset}\n", *numbers, "I00\n",
             "ccollections\nOrderedDict\n(tRtR"]  # fmt: skip
    return ("(dVx\n" + "".join(words) + "s.").encode()


PPO_PICTURES = ("action_net.weight", "action_net.bias", "value_net.weight", "value_net.bias")
REFUSED = {
    ("actor.latent_pi.0.weight", "actor.latent_pi.0.bias", "actor.features_extractor.cnn.0.weight"):
        "is a CnnPolicy of SAC, whose critics read actions",
    (*PPO_PICTURES, "features_extractor.extractors.camera.cnn.0.weight"): "Other policies are not",
    (*PPO_PICTURES, "features_extractor.layers.0.weight"): "an extractor of its own",
    (*PPO_PICTURES, *(f"features_extractor.{each}.weight" for each in
                      ("cnn.0", "cnn.2", "cnn.4", "linear.0"))): "convolutions of .2, 2.",
}  # fmt: skip


def tensors_of(names):
    """Return a pickle of a dict with one tensor of zeros under several names."""
    one = stored_tensor((2, 2), (1, 2))[len(b"(dVx\n") : -2]
    return b"(d" + b"".join(b"V" + name.encode() + b"\n" + one + b"s" for name in names) + b"."


def test_torch_tensors_with_strides_and_offsets_are_read():
    storage = np.arange(4, dtype=np.float32).tobytes()
    read = read_tensors(torch_file(stored_tensor((2, 2), (1, 2)), [storage]), "file")["x"]
    np.testing.assert_array_equal(read, [[0, 2], [1, 3]])
    read = read_tensors(torch_file(stored_tensor((2,), (1,), 2), [storage]), "file")["x"]
    np.testing.assert_array_equal(read, [2, 3])
    for wrong in (((2, 2), (1, 3), 0), ((2,), (1,), 3), ((2,), (-1,), 1), ((5,), (1,), 0)):
        with pytest.raises(Mistake, match="reaches beyond its storage"):
            read_tensors(torch_file(stored_tensor(*wrong), [storage]), "file")
    with pytest.raises(Mistake, match="damaged"):
        read_tensors(torch_file(stored_tensor((4,), (1,)), [storage[:8]]), "file")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("policy.pth", b"\x80\x02}q\x00.", "no file of torch 1.6 or later, or damaged"),
        ("policy.pth", torch_file(pickle.dumps({})), "is not an MlpPolicy .PPO"),
        ("policy.pth", torch_file(pickle.dumps([])), "no dict of tensors"),
        ("data", b"{", "no model of Stable-Baselines3, or damaged"),
        ("data", json.dumps({"use_sde": True}).encode(), "use_sde"),
        ("data", json.dumps({"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules."
                 "activation.LeakyReLU'>"}}).encode(), "activation LeakyReLU. Sterling reads"),
    ],
)  # fmt: skip
def test_sb3_init_refuses_other_files_in_one_line(tmp_path, name, content, message):
    with pytest.raises(Mistake, match=message) as caught:
        begin("ppo", with_policy(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_changed_init_file_is_refused(tmp_path):
    model = shutil.copy(MODELS / "dqn.zip", tmp_path / "model.zip")
    init = resolve_init(model, [0])
    settings = resolve_settings(
        "dqn", f"{MODELS / 'small_worlds.py'}:choices", steps=64, preset=False, init=init,
        fields={"width": 8, **OFF},
    )  # fmt: skip
    shutil.copy(MODELS / "ppo-choices.zip", model)
    with pytest.raises(Mistake, match="has changed since this run began"):
        build_first_phase(settings)


@pytest.fixture(name="earlier", scope="module")
def _earlier(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "ppo"
    sterling.train("ppo", "CartPole-v1", steps=64, seeds=2, envs=4, length=8, minibatch=16, width=8,
                   preset=False, evaluate_episodes=0, out=path)  # fmt: skip
    return path


def weights(run):
    return np.asarray(run.agent.state.nets.policy.layers[0].weight)


@pytest.mark.parametrize("form", ["path in the State", "role", "exported"])
def test_safetensors_init_assigns_arrays_by_name(earlier, tmp_path, form, capsys):
    stored = load_file(
        checkpoint.latest_checkpoint(run_folder.checkpoints_path(earlier)) / "tree.safetensors"
    )
    prefix = "agent/state/"
    own = {
        x.removeprefix(prefix): np.array(y[1])
        for x, y in stored.items()
        if x.startswith(f"{prefix}nets")
    }
    statistics = {
        x.removeprefix(prefix): np.array(y[1]) for x, y in stored.items() if "obs_stat" in x
    }
    names = {x.replace("nets/", "") if form == "role" else x: y for x, y in own.items()}
    names |= statistics
    if form == "exported":  # dots, rows instead of vectors, and no numbers of one entry
        names = {x.replace("/", "."): y.reshape(1, -1) if y.ndim == 1 else y
                 for x, y in names.items() if y.ndim}  # fmt: skip
    save_file(names, tmp_path / "own.safetensors")
    run = begin_cartpole(tmp_path / "own.safetensors", seeds=3)
    assert "policy (7 of 7 arrays), value (6 of 6 arrays), obs_stat" in capsys.readouterr().out
    before = weights(sterling.load(earlier))[1]
    np.testing.assert_array_equal(weights(run), np.stack([before] * 3))


def begin_cartpole(init, seeds):
    fields = {"length": 8, "minibatch": 16, "width": 8}
    settings = resolve_settings("ppo", "CartPole-v1", steps=64, seeds=seeds, envs=4, preset=False,
                                fields=fields, init=resolve_init(init, range(seeds)))  # fmt: skip
    return build_first_phase(settings)


def test_checkpoint_safetensors_init_keeps_seeds(earlier, tmp_path):
    newest = checkpoint.latest_checkpoint(run_folder.checkpoints_path(earlier))
    run = begin_cartpole(newest / "tree.safetensors", seeds=3)
    np.testing.assert_array_equal(weights(run), weights(sterling.load(earlier))[[0, 1, 0]])


def test_safetensors_init_with_unknown_names_lists_expected_names(tmp_path):
    save_file({"fc1.weight": np.zeros((4, 8), np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(
        Mistake, match=r"It has fc1/weight, .*; this run has policy/layers/0/weight"
    ):
        begin_cartpole(tmp_path / "other.safetensors", seeds=1)
    (tmp_path / "no.safetensors").write_bytes(b"no")
    with pytest.raises(Mistake, match="no safetensors file, or damaged"):
        begin_cartpole(tmp_path / "no.safetensors", seeds=1)
    with pytest.raises(Mistake, match="which has no seeds"):
        resolve_init(f"{MODELS / 'ppo.zip'}:seed=1", [0])
