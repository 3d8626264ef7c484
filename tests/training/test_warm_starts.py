"""Runs that start from an earlier run: what is taken, what is said, and that it is stored."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import logs
import numpy as np
import pytest
from stopping import Stop

import sterling
from sterling import cli
from sterling.report.runs.read_runs import RunResult, SeedCurves
from sterling.report.runs.setting_differences import differing_settings
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.saving import checkpoint, run_folder
from sterling.training.warm_start.init_word import resolve_init
from sterling.training.warm_start.learned_parts import learned_parts, role_name
from sterling.types import Mistake

PPO = {"envs": 4, "length": 8, "minibatch": 16, "epochs": 1, "width": 8}
OFF = {"envs": 4, "width": 8, "batch": 8, "warmup": 16}
SMALL = {"ppo": PPO, "recurrent-ppo": PPO | {"minibatch": 32}}
HOW = {"preset": False, "evaluate_episodes": 0}
HERE, BOX = "CartPole-v1", "probe:both-continuous"
COUNTERS = ("iteration", "planned", "reward_statistics/running", "updates")


@pytest.fixture(name="runs", scope="module")
def _runs(tmp_path_factory):
    """The folders of three short runs."""
    root = tmp_path_factory.mktemp("runs")
    sterling.train("ppo", HERE, steps=64, seeds=2, out=root / "ppo", **PPO, **HOW)
    sterling.train("sac", BOX, steps=32, out=root / "sac", **OFF, **HOW)
    log = {"data": logs.write("both-continuous", False, root), "updates": 4, "width": 8, "batch": 8}
    sterling.train("td3bc", BOX, out=root / "td3bc", **log, **HOW)
    return root


def begin(algorithm, world, init, seeds=1, **fields):
    """Return a run at its first iteration, before any update."""
    small = SMALL.get(algorithm, OFF) | fields
    envs = small.pop("envs")
    settings = resolve_settings(
        algorithm, world, steps=64, seeds=seeds, envs=envs, preset=False, fields=small,
        init=resolve_init(init, range(seeds) if isinstance(seeds, int) else seeds),
    )  # fmt: skip
    return build_first_phase(settings)


def arrays(state):
    leaves = jax.tree_util.tree_leaves_with_path(state)
    names = [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves
    ]
    return {name: np.asarray(leaf) for name, leaf in names}


@pytest.mark.slow
def test_init_from_the_same_algorithm_takes_all_but_counters_and_config(runs, capsys):
    before = arrays(sterling.load(runs / "ppo").agent.state)
    now = arrays(begin("ppo", HERE, runs / "ppo", seeds=2, lr=0.5).agent.state)
    fresh = arrays(begin("ppo", HERE, None, seeds=2, lr=0.5).agent.state)
    assert before.keys() == now.keys()
    for name, array in now.items():
        other = fresh if name.startswith("config") or name in COUNTERS else before
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    assert before["iteration"][0] == 2
    assert np.any(before["optimiser/mu/small"] != 0)
    line = capsys.readouterr().out
    assert f"init: from {runs / 'ppo'} (ppo in CartPole-v1) took policy (7 of 7 arrays), " in line
    assert "obs_statistics, reward_statistics, optimiser; each seed from the same seed" in line


@pytest.mark.parametrize(
    ("word", "seeds", "said"),
    [
        ("", {1: 1, 0: 0}, "each seed from the same seed"),
        ("", {0: 0, 1: 1, 2: 0}, "seeds 0, 1, 2 from its seeds 0, 1, 0"),
        (":seed=1", {0: 1, 4: 1}, "all seeds from its seed 1"),
    ],
)
def test_init_maps_seeds_to_seeds_of_the_earlier_run(runs, capsys, word, seeds, said):
    before = arrays(sterling.load(runs / "ppo").agent.state)["nets/policy/layers/0/weight"]
    run = begin("ppo", HERE, f"{runs / 'ppo'}{word}", seeds=list(seeds))
    wanted = before[list(seeds.values())]
    np.testing.assert_array_equal(run.agent.state.nets.policy.layers[0].weight, wanted)
    assert said in capsys.readouterr().out


def test_initialised_run_resumes_without_its_earlier_run(runs, tmp_path):
    earlier = shutil.copytree(runs / "ppo", tmp_path / "earlier")
    how = {"steps": 192, "seeds": 2, "init": earlier, "log_every": 32, **PPO, **HOW}
    whole = sterling.train("ppo", HERE, **how)
    with pytest.raises(SystemExit):
        sterling.train("ppo", HERE, out=tmp_path / "run", sinks=[Stop(at=2)], **how)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["init"]
    assert (stored["path"], stored["seeds"]) == (str(earlier), {"0": 0, "1": 1})
    shutil.rmtree(earlier)
    resumed = sterling.resume(tmp_path / "run")
    for one, other in zip(
        jax.tree.leaves(whole.agent), jax.tree.leaves(resumed.agent), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_initialised_run_saves_a_checkpoint_before_training(runs, tmp_path):
    """A run that is killed in its first minutes needs its start no longer either."""

    class Kill:
        def write(self, row):
            found = checkpoint.latest_checkpoint(run_folder.checkpoints_path(tmp_path / "run"))
            assert found is not None
            kept.append(checkpoint.read_iteration(found))

        def close(self):
            pass

    kept: list[int] = []
    how = {"steps": 64, "seeds": 2, "init": runs / "ppo", "log_every": 32, **PPO, **HOW}
    sterling.train("ppo", HERE, out=tmp_path / "run", sinks=[Kill()], **how)
    assert kept[0] == 0


def actions(run):
    obs = np.random.default_rng(0).uniform(0.0, 1.0, (1, 16, *run.source.worlds[0].spec.obs.shape))
    keys = jax.random.split(jax.random.key(0), 1)
    return np.asarray(run.agent.act(np.float32(obs), keys, False)[0][0])


def earlier_actions(path):
    run = sterling.load(path)
    obs = np.random.default_rng(0).uniform(0.0, 1.0, (1, 16, *run.world().spec.obs.shape))
    keys = jax.random.split(jax.random.key(0), 1)
    return np.asarray(run.agent.act(np.float32(obs), keys, False)[0][0])


@pytest.mark.parametrize(
    ("earlier", "algorithm", "said"),
    [
        ("sac", "td3", "policy (6 of 6 arrays), critics (12 of 12 arrays)"),  # half of the outputs
        ("td3bc", "td3", "obs_statistics (folded into the first layers)"),
        ("td3bc", "sac", "obs_statistics (folded into the first layers)"),  # and deviations of 1
    ],
)
def test_init_from_another_algorithm_acts_as_the_earlier_policy(
    runs, capsys, earlier, algorithm, said
):
    run = begin(algorithm, BOX, runs / earlier)
    out = capsys.readouterr().out
    assert said in out
    assert "optimiser" not in out
    found, wanted = actions(run), earlier_actions(runs / earlier)
    assert np.std(wanted) > 0
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_init_takes_critics_with_their_target_networks(runs):
    run, obs = begin("td3", BOX, runs / "td3bc"), np.float32([[[0.3]]])
    earlier = sterling.load(runs / "td3bc").agent
    action = np.float32([[[0.25]]])
    obs = np.broadcast_to(obs, (1, 1, *run.source.worlds[0].spec.obs.shape))
    value = run.agent.action_value(obs, action)
    np.testing.assert_allclose(value, earlier.action_value(obs, action), atol=1e-5)
    nets, target = run.agent.state.nets, run.agent.state.target
    assert np.any(nets.critics.first.layers[0].weight != target.critics.first.layers[0].weight)


def test_init_of_ppo_from_td3bc_drops_the_tanh(runs, capsys):
    run = begin("ppo", BOX, runs / "td3bc", activation="relu", normalise_reward=False)
    assert "its tanh is left out here" in capsys.readouterr().out
    np.testing.assert_allclose(np.tanh(actions(run)), earlier_actions(runs / "td3bc"), atol=1e-5)


def test_init_leaves_out_a_value_network_of_another_reward_scale(runs, capsys):
    run = begin("ppo", HERE, runs / "ppo", seeds=2, normalise_reward=False)
    fresh = begin("ppo", HERE, None, seeds=2, normalise_reward=False)
    assert (
        "not value (rewards are normalised there, not normalised here)" in capsys.readouterr().out
    )
    mine, new = run.agent.state.nets.value, fresh.agent.state.nets.value
    np.testing.assert_array_equal(mine.layers[0].weight, new.layers[0].weight)


def test_init_keeps_a_constant_sac_temperature(runs):
    kept = begin("sac", BOX, runs / "sac")
    constant = begin("sac", BOX, runs / "sac", tune_alpha=False, alpha=0.25)
    assert kept.agent.state.log_alpha[0] != 0.0
    np.testing.assert_allclose(constant.agent.state.log_alpha, np.log(0.25), rtol=1e-6)


WORLDS = """
import gymnasium
import numpy as np
from gymnasium import spaces

class World(gymnasium.Env):
    def __init__(self, size=4, choices=2):
        self.observation_space = spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = spaces.Discrete(choices)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}
    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, True, False, {}

def same(): return World()
def more(): return World(choices=3)
def wide(): return World(size=5)
"""


@pytest.fixture(name="worlds", scope="module")
def _worlds(tmp_path_factory):
    path = tmp_path_factory.mktemp("worlds") / "small_worlds_of_starts.py"
    path.write_text(WORLDS)
    return path


@pytest.mark.slow
def test_init_in_an_environment_with_more_actions_redraws_the_output_layer(runs, worlds, capsys):
    run = begin("ppo", f"{worlds}:same", runs / "ppo", seeds=2)
    assert "policy (7 of 7 arrays)" in capsys.readouterr().out
    run.source.close()
    run = begin("ppo", f"{worlds}:more", runs / "ppo", seeds=2)
    out = capsys.readouterr().out
    assert "took policy (4 of 7 arrays), value (6 of 6 arrays)" in out
    assert "not optimiser (its networks differ)" in out
    policy, before = (
        run.agent.state.nets.policy,
        sterling.load(runs / "ppo").agent.state.nets.policy,
    )
    np.testing.assert_array_equal(policy.layers[1].weight, before.layers[1].weight)
    assert policy.layers[2].weight.shape == (2, 8, 3)
    run.source.close()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ("ppo", "WORLDS:wide", "ppo", {}),
            r"CartPole-v1 has observations Box.*\(4,\).*Box.*\(5,\)",
        ),
        (("dqn", "WORLDS:more", "ppo", {}), r"has actions Discrete\(2\), and .* has Discrete\(3\)"),
        (("dqn", HERE, "ppo", {}), r"nothing of .* fits: advantage \(not in it\)"),
        (("ppo", HERE, "ppo", {"width": 4}), r"policy \(other shape\).* That run has width=8"),
        (("ppo", HERE, "ppo", {"activation": "relu"}), r"policy \(tanh there, relu here\)"),
        (("ppo", BOX, "sac", {"activation": "relu"}), "Add --no-normalise-obs"),
        (("recurrent-ppo", HERE, "ppo", {}), "acts with a memory, the other without"),
        (("ppo", HERE, "ppo:seed=7", {}), "has no seed 7; it has 0, 1"),
        (("ppo", HERE, "nowhere", {}), "nowhere holds no run"),
        (("ppo", HERE, "WORLDS", {}), "cannot be the start of a run. Give a run's folder"),
    ],
)
def test_unsuitable_init_is_refused_in_one_line(runs, worlds, asked, message):
    algorithm, world, init, fields = asked
    world, start = (text.replace("WORLDS", str(worlds)) for text in (world, init))
    with pytest.raises(Mistake, match=message) as caught:
        begin(algorithm, world, start if start != init else runs / start, **fields)
    assert "\n" not in str(caught.value)


def test_refused_init_leaves_no_run_folder(runs, tmp_path, capsys):
    words = f"train ppo {HERE} --steps 64 --envs 4 --length 8 --minibatch 16 --width 4 --no-preset"
    asked = [*words.split(), "--init", str(runs / "ppo"), "--out", str(tmp_path / "run")]
    assert cli.main(asked) == 2
    assert "nothing of" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_train_command_takes_init_with_a_seed(runs, tmp_path, capsys):
    words = f"train ppo {HERE} --steps 64 --envs 4 --length 8 --minibatch 16 --width 8 --no-preset"
    words += " --epochs 1 --quiet --evaluate-episodes 0"
    asked = [*words.split(), "--init", f"{runs / 'ppo'}:seed=1", "--out", str(tmp_path / "run")]
    assert cli.main(asked) == 0
    assert "all seeds from its seed 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/config.json").read_text())["init"]["seeds"] == {"0": 1}


def test_init_refuses_language_models_and_changed_checkpoints(runs, tmp_path):
    with pytest.raises(Mistake, match="init does not start language models"):
        sterling.train("sft", "reverse-text", updates=1, init=runs / "ppo")
    earlier = shutil.copytree(runs / "ppo", tmp_path / "earlier")
    init = resolve_init(earlier, [0])
    settings = resolve_settings("ppo", HERE, steps=64, envs=4, preset=False, init=init,
                                fields={x: PPO[x] for x in PPO if x != "envs"})  # fmt: skip
    meta = run_folder.checkpoints_path(earlier) / init.checkpoint / "meta.json"
    meta.write_text(meta.read_text().replace('"step": ', '"step":  '))
    assert build_first_phase(settings).agent is not None  # written otherwise, the content is equal
    other = dataclasses.replace(settings, init=dataclasses.replace(init, hash="0" * 64))
    with pytest.raises(Mistake, match="has no longer the checkpoint"):
        build_first_phase(other)


@pytest.mark.slow
def test_seed_processes_initialise_each_seed_as_one_process_does(runs, tmp_path, capsys):
    how = {"steps": 64, "seeds": 3, "init": runs / "ppo", **PPO, **HOW}
    one = sterling.train("ppo", HERE, **how)
    capsys.readouterr()
    many = sterling.train("ppo", HERE, strategy="processes", out=tmp_path / "run", **how)
    assert "seeds 0, 1, 2 from its seeds 0, 1, 0" in capsys.readouterr().out
    for mine, theirs in zip(jax.tree.leaves(one.agent), jax.tree.leaves(many.agent), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_setting_differences_include_init():
    def result(init):
        config = {"steps": 1, "envs": 1, "config": {}, "init": init}
        nothing = SeedCurves(np.zeros(0), np.zeros((1, 0)), [0], {})
        return RunResult("place", "ppo", HERE, [0], None, nothing, config=config)

    started = {"path": "runs/a", "hash": "1", "checkpoint": "0", "seeds": {"0": 0}}
    other = differing_settings([result(None), result(started)])
    assert list(other) == ["init"]
    assert str(other["init"][1]) == "a"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("nets/policy/layers/0/weight", "policy/layers/0/weight"),  # ppo
        ("nets/actor/net/layers/0/bias", "policy/layers/0/bias"),  # td3
        ("actor/net/layers/1/bias", "policy/layers/1/bias"),  # sac
        ("policy/actor/net/layers/1/bias", "policy/layers/1/bias"),  # mbpo, pebble
        ("policy/target/second", "target/second"),
        ("target/critics/first", "target/first"),
        ("critics/torso/parts/0", "torso/parts/0"),
        ("nets/log_std", "policy/log_std"),
        ("normaliser/moments/0/mean", "obs_statistics/moments/0/mean"),
        ("net", "net"),
    ],
)
def test_learned_part_role_names_are_equal_across_algorithms(path, name):
    assert role_name(path) == name


def test_every_trained_array_is_a_learned_part_or_a_counter(runs):
    for name in ("ppo", "sac", "td3bc"):
        state = sterling.load(runs / name).agent.state
        taken = {path for part in learned_parts(state) for path in part.leaves.values()}
        left = {path for path in arrays(state) if not path.startswith("config")} - taken
        assert left <= set(COUNTERS), name
