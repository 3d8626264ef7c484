"""The contract of learners of language models: what all algorithms promise, on text."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from letters import Letters
from stopping import newest

import sterling
from sterling import algorithms
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.types import Generations, Record

HERE = Path(__file__).parent
SMALL = {"prompts": 8, "group": 8, "limit": 5}
ALONE = {"sft": {"batch": 16}, "dpo": {"batch": 4}, "reward": {"batch": 4}}  # they do not talk
NAMES = (*ALONE, *algorithms.GRADIENT_PRESETS)
TAUGHT = {"gkd"}  # its runs need a teacher: tests/training/test_text_distillation.py
SPEECH = {"model": "nano", "context": 12, "slots": 32}
TEXTS = {"examples": 64}  # of what is imitated or compared


def fields(name):
    """Small batches, and step sizes at which thirty updates are enough."""
    if name in ALONE:
        spoken = {} if name == "reward" else {"limit": 5}
        return {"lr": 3e-3, "rise": 2, **spoken, **ALONE[name]}
    own = {"dapo": {"overlong": 0}, "rloo": {"kl": "none"}}
    return {"lr": 3e-3, "rise": 2, **SMALL, **own.get(name, {})}


def train(name, updates, seeds=(0,), strategy="map", **more):
    return sterling.train(
        *(name, Letters),
        updates=updates,
        seeds=list(seeds),
        strategy=strategy,
        evaluate_episodes=more.pop("evaluate_episodes", 0),
        **{**SPEECH, **(TEXTS if name in ALONE else {}), **fields(name), **more},
    )


def slow(*names):
    """Learners whose cases only make test-all runs."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", ["grpo", *slow("sft", "rloo", "token-ppo")])
def test_language_algorithms_learn_the_rewarded_answer(name):
    learns = 60 if name in ("token-ppo", "rloo") else 40
    run = train(name, learns, evaluate_episodes=64, evaluate_every=learns)  # by chance it is 0.01
    assert run.result["final"]["return"]["per_seed"][0] > 0.8


@pytest.mark.as_users
@pytest.mark.parametrize("name", ["grpo", *slow("sft", "token-ppo")])
@pytest.mark.usefixtures("one_layer")
def test_language_training_under_map_equals_each_seed_alone(name):
    together, alone = train(name, 4, (0, 1, 2), piece=4), train(name, 4, (1,), piece=4)
    leaves = [jax.tree.leaves(run.agent.state) for run in (together, alone)]
    for many, one in zip(*leaves, strict=True):
        np.testing.assert_array_equal(np.asarray(many)[1], np.asarray(one)[0])


@pytest.mark.slow
def test_language_training_under_vmap_is_close_to_each_seed_alone():
    together, alone = train("grpo", 2, (0, 1), "vmap"), train("grpo", 2, (1,))
    leaves = [jax.tree.leaves(run.agent.state) for run in (together, alone)]
    for many, one in zip(*leaves, strict=True):
        np.testing.assert_allclose(np.asarray(many)[1], np.asarray(one)[0], rtol=5e-3, atol=5e-3)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import json, sterling
from letters import Letters
path, kind, dies, options = json.loads(sys.argv[2])
world = lambda: Letters(dies)
if kind == "resume":
    sterling.resume(path, environment=world)
else:
    sterling.train("grpo", world, out=path, updates=6, seeds=2, log_every=2,
                   checkpoint_minutes=0.0, evaluate_episodes=8, evaluate_every=3, **options)
"""


def start(path, kind, dies, late):
    options = {**SPEECH, **fields("grpo"), "curriculum": "advantage", "levels": "0-1", late: 1}
    words = [str(HERE), json.dumps([str(path), kind, dies, options])]
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], env=os.environ, check=False)


@pytest.mark.slow  # tests/experience/test_dumped.py stops and resumes one by a signal
@pytest.mark.parametrize("late", ["lag", "ahead"])
def test_language_training_killed_in_a_rollout_resumes_exactly(tmp_path, late):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole, "train", 0, late).returncode == 0
    assert start(broken, "train", 600, late).returncode == -9  # 128 answers an iteration, 2 seeds
    assert not (broken / "result.json").exists()
    assert start(broken, "resume", 0, late).returncode == 0
    trees = [newest(path) for path in (whole, broken)]
    assert set(trees[0]) == set(trees[1])
    for leaf in trees[0]:
        np.testing.assert_array_equal(trees[0][leaf], trees[1][leaf], err_msg=leaf)
    results = [json.loads((p / "result.json").read_text()) for p in (whole, broken)]
    assert results[0]["final"] == results[1]["final"]


LEARN = {name: jax.jit(algorithms.find(name).learn) for name in NAMES}


@functools.lru_cache
def one_update(name):
    """State before and after an update on a fixed batch, and the signals."""
    module = algorithms.find(name)
    config = module.Config(**{**algorithms.preset_fields(name), **fields(name)})

    def create(key):
        return LanguageModel.create(key, 7, 8, qwen3_form(8, 2, 1), 2)

    state = jax.jit(lambda key: module.begin(create(key), config))(jax.random.key(0))
    after, signals = LEARN[name](state, make_batch(), jax.random.key(1))
    return state, after, signals


def make_batch(rows=8, tokens=6):
    """Answers of different lengths, one cut, one of a scene that failed."""
    random = np.random.default_rng(3)
    ids = random.integers(7, size=(rows, tokens + 1)).astype(np.int32)
    length = random.integers(3, tokens + 1, rows)
    places = np.arange(tokens)[None]
    last = places == length[:, None] - 1
    discount = np.where(last & (np.arange(rows) != 2)[:, None], 0.0, 1.0)
    score = random.random(rows)
    arrays = {
        "obs": ids[:, :-1],
        "action": ids[:, 1:],
        "reward": np.where(last, score[:, None], 0.0).astype(np.float32),
        "discount": discount.astype(np.float32),
        "last": last,
        "mask": (places >= 2) & (places < length[:, None]),
    }
    extras = {
        "log_prob": -random.random((rows, tokens)).astype(np.float32),
        "turn": np.zeros((rows, tokens), np.int32),
        "group": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32),
        "score": score.astype(np.float32),
        "valid": np.arange(rows) != 5,
    }
    return Record(
        next_obs=None, extras=jax.tree.map(jnp.asarray, extras), **jax.tree.map(jnp.asarray, arrays)
    )


@pytest.mark.parametrize("name", ["grpo", *slow("sft", "rloo", "token-ppo")])
def test_language_gradient_accumulation_leaves_the_update_unchanged(name):
    module = algorithms.find(name)

    def moved(piece):
        config = module.Config(**{**algorithms.preset_fields(name), **fields(name), "piece": piece})
        begun = one_update(name)[0]
        state = dataclasses.replace(begun, config=config)
        return LEARN[name](state, make_batch(), jax.random.key(1))[0].model

    for one, two in zip(jax.tree.leaves(moved(0)), jax.tree.leaves(moved(2)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=2e-5)


def test_language_presets_name_existing_config_fields():
    for name in algorithms.GRADIENT_PRESETS:
        module = algorithms.find(name)
        needs = module.needs(module.Config(**algorithms.preset_fields(name)))
        assert isinstance(needs, Generations), name
