"""Model families learn and sample what transformers computes, and say what they do not support."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from sterling.language.models import lora, peft_folder
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.model_families import plan_from_config, plan_of_model
from sterling.language.models.model_folder import load, save
from sterling.language.models.model_weights import blank_model
from sterling.nets.attention.segments import Segments
from sterling.types import Mistake

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "smollm3", "olmo2")


def config_of(name: str, **values) -> dict:
    """A fixture's config.json with other values; ... takes one out."""
    content = json.loads((FIXTURES / name / "config.json").read_text()) | values
    return {key: value for key, value in content.items() if value is not ...}


@pytest.mark.parametrize("name", NAMES)
def test_cached_decoding_gives_the_logits_of_transformers(name):
    model, _ = load(FIXTURES / name)
    wanted = load_file(FIXTURES / name / "expected.safetensors")
    ids = jnp.asarray(wanted["ids"], jnp.int32)
    step = jax.jit(LanguageModel.feed)
    cache, found = model.stack.empty(*ids.shape), []
    for at in range(ids.shape[1]):
        hidden, cache = step(model, ids[:, at : at + 1], cache, jnp.full(2, at, jnp.int32))
        found.append(model.scores(hidden)[:, 0])
    np.testing.assert_allclose(np.stack(found, 1), wanted["logits"], atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences_give_the_logits_of_transformers(name):
    """Six in a line: long enough to be read in blocks."""
    model, _ = load(FIXTURES / name)
    wanted = load_file(FIXTURES / name / "expected.safetensors")
    rows, time = wanted["ids"].shape
    ids = jnp.asarray(np.tile(wanted["ids"].reshape(1, -1), 3), jnp.int32)
    at = jnp.tile(jnp.arange(time, dtype=jnp.int32), 3 * rows)[None]
    begin = jnp.arange(ids.size, dtype=jnp.int32)[None] // time * time
    segments = Segments(begin, jnp.zeros_like(begin), jnp.zeros_like(begin))
    logits = model.scores(model.hidden(ids, at=at, segments=segments))
    logits = np.asarray(logits).reshape(3, rows, time, -1)
    for each in logits:
        np.testing.assert_allclose(each, wanted["logits"], atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_lora_adapters_of_each_family_are_written_and_read(name, tmp_path):
    model, tokenizer = load(FIXTURES / name)
    ids = jnp.arange(3, 15)[None]
    adapted = lora.add_adapters(model, rank=2)
    learned, fixed = lora.split_trainable(adapted)
    adapted = lora.join_trainable(jax.tree.map(lambda leaf: leaf + 0.05, learned), fixed)
    peft_folder.write_adapters(tmp_path / "adapter", adapted)
    again = peft_folder.read_adapters(tmp_path / "adapter", model)
    np.testing.assert_array_equal(again(ids), adapted(ids))
    assert np.abs(np.asarray(adapted(ids) - model(ids))).max() > 0.01
    save(tmp_path / "merged", adapted, tokenizer)
    merged, _ = load(tmp_path / "merged")
    assert plan_of_model(merged).family == name
    np.testing.assert_allclose(merged(ids), adapted(ids), atol=1e-5, rtol=0.0)


def test_mistral_window_is_refused_only_if_the_context_is_longer():
    plain = plan_from_config(config_of("mistral"), "")
    for window in (None, 2048, 4096):
        config = config_of("mistral", sliding_window=window, max_position_embeddings=2048)
        assert plan_from_config(config, "") == plain


def test_phi3_of_wholly_rotary_heads_is_read_and_written_by_its_own_names(tmp_path):
    rope = {"rope_theta": 10_000.0, "rope_type": "default"}
    plan = plan_from_config(config_of("phi3", rope_parameters=rope), "")
    assert len(plan.form.rates) == plan.form.size // 2
    model = blank_model(plan, json.dumps(config_of("phi3", rope_parameters=rope)))
    save(tmp_path / "it", model, load(FIXTURES / "phi3")[1])
    assert {
        "model.layers.1.self_attn.qkv_proj.weight",
        "model.layers.1.mlp.gate_up_proj.weight",
    } < (load_file(tmp_path / "it" / "model.safetensors").keys())
    assert load(tmp_path / "it")[0].stack.form == plan.form
    with pytest.raises(Mistake, match="unknown LoRA target 'k_proj'"):
        lora.add_adapters(model, targets=["k_proj"])


def test_smollm3_layers_without_rotary_positions_are_read():
    for values, layers in (
        ({"no_rope_layers": [0, 1]}, (0,)),
        ({"no_rope_layers": [1, 1, 0]}, ()),  # longer than the model has layers
        ({"no_rope_layers": ..., "no_rope_layer_interval": 2}, (1,)),
        ({"no_rope_layers": ...}, ()),  # each fourth
        ({"no_rope_layers": None, "no_rope_layer_interval": 1}, (0, 1)),
    ):
        assert plan_from_config(config_of("smollm3", **values), "").form.unrotated == layers
    assert plan_from_config(config_of("smollm3", tie_word_embeddings=...), "").tied


REFUSED = {
    "mistral, short window": (
        config_of("mistral", sliding_window=2047, max_position_embeddings=2048),
        "sliding_window 2047 is shorter than max_position_embeddings 2048",
    ),
    "mistral, window left out": (
        config_of("mistral", sliding_window=..., max_position_embeddings=...),
        "sliding_window 4096 is shorter than max_position_embeddings 131072",
    ),
    "mistral, part": (config_of("mistral", partial_rotary_factor=0.5), "partly rotary"),
    "phi3, short window": (
        config_of("phi3", sliding_window=2047),
        "sliding_window 2047 is shorter than max_position_embeddings 4096",
    ),
    "phi3, long contexts": (
        config_of("phi3", rope_scaling={"type": "longrope", "short_factor": [1.0] * 2}),
        "positions of type 'longrope' are not supported",
    ),
    "phi3, odd part": (
        config_of("phi3", rope_parameters={"partial_rotary_factor": 0.4}),
        "partial_rotary_factor 0.4 of 8 numbers",
    ),
    "phi3, part in words": (
        config_of("phi3", rope_parameters={"partial_rotary_factor": "half"}),
        "partial_rotary_factor 'half' of 8 numbers",
    ),
    "smollm3, layers": (config_of("smollm3", no_rope_layers=[1]), "no_rope_layers is not a list"),
    "smollm3, numbers of layers": (
        config_of("smollm3", no_rope_layers=[1, 2]),
        "no_rope_layers is not a list of 0 or 1 for each of 2 layers",
    ),
    "smollm3, no interval": (
        config_of("smollm3", no_rope_layers=None, no_rope_layer_interval=0),
        "no_rope_layers is not a list",
    ),
    "smollm3, window": (
        config_of(
            "smollm3",
            layer_types=None,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=28,
        ),
        "sliding window",
    ),
    "mistral, window in words": (
        config_of("mistral", sliding_window="long"),
        "sliding_window is 'long', not a count",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_fields_of_model_families_are_refused(case):
    config, said = REFUSED[case]
    with pytest.raises(Mistake) as error:
        plan_from_config(config, "a/config.json")
    line = str(error.value)
    assert said in line
    assert "a/config.json" in line
    assert "\n" not in line
    assert "; " in line
