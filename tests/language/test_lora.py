"""LoRA: begins as the model was, learns only its own matrices, and PEFT's folders hold it."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from safetensors.numpy import load_file, save_file

from sterling.language.models import lora, peft_folder
from sterling.language.models.causal_lm import tiny
from sterling.language.models.model_folder import load, save
from sterling.language.tokenizer import Tokenizer
from sterling.types import Mistake

IDS = constant_array(np.arange(24).reshape(2, 12))
FIXTURES = Path(__file__).parent / "fixtures"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def stirred(model):
    """The model with adapters that do something."""
    learned, fixed = lora.split_trainable(model)
    leaves, structure = jax.tree.flatten(learned)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    drawn = [0.1 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return lora.join_trainable(jax.tree.unflatten(structure, drawn), fixed)


@eqx.filter_jit
def logits_of(model):
    return model(IDS)


def far(left, right) -> float:
    return float(np.abs(np.asarray(left) - np.asarray(right)).max())


@pytest.fixture(scope="module")
def model():
    return tiny(40, "nano")


@pytest.fixture(scope="module")
def adapted(model):
    return stirred(lora.add_adapters(model, rank=3, alpha=5.0, key=jax.random.key(2)))


def test_fresh_lora_adapters_leave_the_model_unchanged(model):
    fresh = lora.add_adapters(model, rank=4)
    assert (logits_of(fresh) == logits_of(model)).all()
    count = sum(leaf.size for leaf in jax.tree.leaves(lora.split_trainable(fresh)[0]))
    width, hidden, mixed, heads = 64, 192, 64 + 2 * 16, 64
    ins = 3 * width + heads + 2 * width + hidden
    assert count == 2 * 4 * (ins + mixed + width + 2 * hidden + width)
    assert fresh.parameters == model.parameters + count
    first = np.asarray(jax.tree.leaves(lora.split_trainable(fresh)[0])[0])
    assert 0.12 < np.abs(first).max() <= 0.125


def test_lora_weight_change_is_alpha_over_rank_times_b_a(model):
    only = stirred(lora.add_adapters(model, rank=3, alpha=6.0, targets=["v_proj"]))
    each = lora.adapted_linears(only)["queries"].adapters[0]
    start = 64 + 16
    change = 2.0 * np.einsum("lor,lri->lio", each.second, each.first)
    before = np.asarray(model.stack.blocks.queries.weight)
    after = np.asarray(lora.merge_adapters(only).stack.blocks.queries.weight)
    np.testing.assert_allclose(after[..., start:], before[..., start:] + change, atol=1e-6)
    assert (after[..., :start] == before[..., :start]).all()


@pytest.mark.parametrize("targets", [TARGETS, ("q_proj", "up_proj"), ("k_proj", "gate_proj")])
def test_merged_lora_model_computes_the_same_logits(model, targets):
    mixed = stirred(lora.add_adapters(model, rank=3, targets=targets))
    assert far(logits_of(mixed), logits_of(model)) > 0.01
    plain = lora.merge_adapters(mixed)
    assert jax.tree.structure(plain) == jax.tree.structure(model)
    assert far(logits_of(mixed), logits_of(plain)) < 1e-5
    assert lora.merge_adapters(model) is model


def test_only_the_adapters_are_learned(model, adapted):
    learned, fixed = lora.split_trainable(adapted)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(learned)]
    assert len(names) == 2 * len(TARGETS)
    assert all(".adapters[" in name for name in names)
    assert len(jax.tree.leaves(fixed)) == len(jax.tree.leaves(model))

    @jax.jit
    def gradient(learned):
        return jax.grad(lambda tree: lora.join_trainable(tree, fixed).log_prob(IDS)[0].mean())(
            learned
        )

    found = gradient(learned)
    assert jax.tree.structure(found) == jax.tree.structure(learned)
    assert all(float(jnp.abs(leaf).max()) > 0.0 for leaf in jax.tree.leaves(found))
    moved = lora.join_trainable(jax.tree.map(lambda a, b: a + b, learned, found), fixed)
    pairs = zip(
        jax.tree.leaves(lora.split_trainable(moved)[1]), jax.tree.leaves(model), strict=True
    )
    assert all((a == b).all() for a, b in pairs)
    assert moved.log_prob(IDS)[0].mean() > adapted.log_prob(IDS)[0].mean()


def test_without_adapters_everything_is_learned(model):
    learned, fixed = lora.split_trainable(model)
    assert not jax.tree.leaves(fixed)
    assert eqx.tree_equal(lora.join_trainable(learned, fixed), model)


def test_cached_decoding_applies_lora_adapters(adapted):
    cache = adapted.stack.empty(2, 12)
    begin = jnp.zeros(2, jnp.int32)
    hidden, _ = jax.jit(lambda ids, cache: adapted.feed(ids, cache, begin))(IDS, cache)
    assert far(adapted.scores(hidden), logits_of(adapted)) < 1e-5


def test_adapters_are_float32_beside_half_precision(model):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model)
    mixed = stirred(lora.add_adapters(half, rank=2))
    assert {leaf.dtype for leaf in jax.tree.leaves(lora.split_trainable(mixed)[0])} == {
        jnp.dtype("float32")
    }
    plain = lora.merge_adapters(mixed)
    assert plain.embedding.dtype == plain.stack.blocks.up.weight.dtype == jnp.bfloat16
    assert far(logits_of(mixed), logits_of(half)) > 0.0
    assert far(logits_of(mixed), logits_of(plain)) < 0.05


def test_peft_folder_round_trips_lora_adapters(adapted, model, tmp_path):
    peft_folder.write_adapters(tmp_path / "adapter", adapted, "some/model")
    again = peft_folder.read_adapters(tmp_path / "adapter", model)
    assert eqx.tree_equal(again, adapted)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (3, 5.0)
    assert set(config["target_modules"]) == set(TARGETS)
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * len(TARGETS)
    name = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"
    assert tensors[name].shape == (16, 3)
    with pytest.raises(Mistake, match="no LoRA adapters"):
        peft_folder.write_adapters(tmp_path / "none", model)
    with pytest.raises(Mistake, match="already exists"):
        peft_folder.write_adapters(tmp_path / "adapter", adapted)


def test_saved_model_folder_has_lora_adapters_merged(model, adapted, tmp_path):
    save(tmp_path / "it", adapted, Tokenizer.characters("abc"))
    again, _ = load(tmp_path / "it")
    assert far(logits_of(again), logits_of(adapted)) < 1e-5


def test_peft_rank_stabilised_lora_scale_is_read(adapted, model, tmp_path):
    peft_folder.write_adapters(tmp_path / "it", adapted)
    path = tmp_path / "it" / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"use_rslora": True}))
    scale = lora.adapted_linears(peft_folder.read_adapters(tmp_path / "it", model))["up"].scale
    assert scale == pytest.approx(5.0 / 3**0.5)


def test_peft_config_options_without_effect_are_ignored(adapted, model, tmp_path):
    """As PEFT 0.21 writes them all, and what tells only how learning began or was done."""
    path = peft_folder.write_adapters(tmp_path / "it", adapted)
    config = json.loads((path / "adapter_config.json").read_text())
    empty = ("use_dora", "use_qalora", "lora_bias", "ensure_weight_tying", "fan_in_fan_out")
    nothing = ("alora_invocation_tokens", "arrow_config", "kasa_config", "modules_to_save")
    config |= dict.fromkeys(empty, False) | dict.fromkeys(nothing)
    config |= {"rank_pattern": {}, "loftq_config": {}, "qalora_group_size": 16}
    config |= {"megatron_core": "megatron.core", "peft_version": "0.21.2", "lora_dropout": 0.1}
    for beginning in (True, False, "gaussian", "orthogonal", "eva"):
        text = json.dumps(config | {"init_lora_weights": beginning})
        (path / "adapter_config.json").write_text(text)
        assert eqx.tree_equal(peft_folder.read_adapters(path, model), adapted)


def test_unsupported_peft_adapters_are_refused(adapted, model, tmp_path):
    path = peft_folder.write_adapters(tmp_path / "it", adapted)
    config = json.loads((path / "adapter_config.json").read_text())
    for values, said in (
        ({"use_dora": True}, "use_dora is True"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"peft_type": "IA3"}, "does not describe LoRA"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', which is not supported"),
        ({"init_lora_weights": "olora"}, "init_lora_weights is 'olora'"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights is 'loftq'"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"use_something_new": {"a": 1}}, "use_something_new"),
        ({"lora_alpha": "16"}, "lora_alpha is '16', not a number"),
        ({"r": 1}, "r is 1, but the matrices have rank"),
    ):
        (path / "adapter_config.json").write_text(json.dumps(config | values))
        with pytest.raises(Mistake, match=said):
            peft_folder.read_adapters(path, model)
    (path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(Mistake, match=r"inputs, 64 outputs"):
        peft_folder.read_adapters(path, load(FIXTURES / "qwen3")[0])
    file = path / "adapter_model.safetensors"
    tensors = load_file(file)
    name = min(tensors)
    save_file({each: tensors[each] for each in tensors if each != name}, file)
    with pytest.raises(Mistake, match="is missing"):
        peft_folder.read_adapters(path, model)
    for odd in (tensors[name][:1], tensors[name].ravel()):
        save_file(tensors | {name: odd}, file)
        with pytest.raises(Mistake, match="use one of equal rank"):
            peft_folder.read_adapters(path, model)
    save_file(tensors | {"base_model.odd": tensors[name]}, file)
    with pytest.raises(Mistake, match="no place in this model"):
        peft_folder.read_adapters(path, model)
    file.write_bytes(b"{}")
    with pytest.raises(Mistake, match="is damaged"):
        peft_folder.read_adapters(path, model)
    with pytest.raises(Mistake, match="is missing or does not describe"):
        peft_folder.read_adapters(tmp_path, model)


def test_invalid_lora_targets_and_rank_are_refused(model, adapted):
    with pytest.raises(Mistake, match="did you mean q_proj"):
        lora.add_adapters(model, targets=["qproj"])
    with pytest.raises(Mistake, match="rank 0"):
        lora.add_adapters(model, rank=0)
    with pytest.raises(Mistake, match="already"):
        lora.add_adapters(adapted)
