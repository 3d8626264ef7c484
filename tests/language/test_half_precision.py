"""Folders in bfloat16, as most published ones are: taught in float32, written as they came."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import language
from sterling.cli import main
from sterling.language.models.causal_lm import tiny
from sterling.language.models.model_weights import with_dtype
from sterling.language.tokenizer import Tokenizer
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import LanguageSettings
from sterling.training.language.base_model import create_learners

SMALL = {"updates": 2, "evaluate_episodes": 2}
SLOW = {"lr": 1e-6, "rise": 1}  # below what weights in bfloat16 can tell apart


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A model of random weights in bfloat16."""
    tokenizer = Tokenizer.characters()
    model = with_dtype(tiny(tokenizer.vocabulary, "nano"), jnp.bfloat16)
    return language.save(tmp_path_factory.mktemp("half") / "hf16", model, tokenizer)


@pytest.fixture(scope="module")
def taught(half):
    """A run that changed it a little."""
    out = half.parent / "sft"
    return sterling.train(
        "sft", "reverse-text", model=str(half), out=out, batch=4, examples=16, **SMALL, **SLOW
    )


def kinds(tree):
    return {str(x.dtype) for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)}


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [("sft", {}), ("grpo", {"kl": "k3"}), ("token-ppo", {}), ("dpo", {}), ("reward", {})],
)
def test_full_finetuning_of_bfloat16_models_uses_float32(half, algorithm, fields):
    asked = LanguageSettings(model=str(half))
    settings = resolve_settings(algorithm, "reverse-text", updates=4, speech=asked, fields=fields)
    assert kinds(create_learners(settings).state) == {"float32"}


@pytest.mark.slow
def test_grpo_on_bfloat16_weights_equals_float32_weights(half):
    """As from the same weights written in float32: nothing is rounded on the way. The bonus of
    entropy moves the weights whatever the answers were worth."""
    model, tokenizer = language.load(half)
    whole = language.save(half.parent / "hf32", with_dtype(model, jnp.float32), tokenizer)
    asked = {"prompts": 2, "group": 2, "limit": 4, "kl": "k3", "piece": 2, "entropy_coef": 0.1}
    made, same = (
        sterling.train("grpo", "reverse-text", model=str(each), **asked, **SMALL)
        for each in (half, whole)
    )
    assert made.result["failed_seeds"] == []
    assert kinds(made.agent.state) == {"float32"}
    for one, other in zip(*map(jax.tree.leaves, (made.agent, same.agent)), strict=True):
        np.testing.assert_array_equal(one, other)
    before = model.embedding.astype(jnp.float32)
    np.testing.assert_array_equal(made.agent.state.reference.embedding[0], before)
    moved = float(jnp.abs(made.agent.state.model.embedding[0] - before).max())
    assert 1e-5 < moved < 1e-2  # two steps of Adam, whose size still rises


def test_float32_master_weights_keep_small_steps_across_load(half, taught):
    before = language.load(half)[0].embedding.astype(jnp.float32)
    after = taught.agent.state.model.embedding[0]
    moved = float(jnp.abs(after - before).max())
    assert 0 < moved < 4e-6  # two steps of Adam
    again = sterling.load(taught.path).agent
    for one, other in zip(jax.tree.leaves(taught.agent), jax.tree.leaves(again), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_base_model_from_a_run_has_its_float32_weights(taught):
    asked = LanguageSettings(model=str(taught.path))
    begun = create_learners(
        resolve_settings("sft", "reverse-text", updates=2, speech=asked)
    ).state.model
    np.testing.assert_array_equal(begun.embedding, taught.agent.state.model.embedding)


def test_exported_model_has_the_base_folders_dtype(half, taught):
    assert kinds(taught.language_model()[0]) == {"bfloat16"}
    out = half.parent / "exported"
    assert main(["export", str(taught.path), str(out)]) == 0
    model, _ = language.load(out)
    assert kinds(model) == {"bfloat16"}
    rounded = taught.agent.state.model.embedding[0].astype(jnp.bfloat16)
    np.testing.assert_array_equal(model.embedding, rounded)


def test_lora_keeps_the_base_in_bfloat16_and_adapters_in_float32(half):
    asked = LanguageSettings(model=str(half), lora=2)
    model = create_learners(
        resolve_settings("sft", "reverse-text", updates=2, speech=asked)
    ).state.model
    assert str(model.embedding.dtype) == "bfloat16"
    adapters = model.stack.blocks.up.adapters
    assert kinds(adapters) == {"float32"}
    assert kinds(with_dtype(model, jnp.float16).stack.blocks.up.adapters) == {"float32"}
