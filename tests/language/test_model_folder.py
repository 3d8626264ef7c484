"""Hugging Face folders: the same logits as transformers', back again, and clear refusals.

The fixtures were made by benchmarks/parity/folders.py: small random checkpoints of each family
as transformers saved them, with its logits and its greedy answers.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sterling import language
from sterling.language.models import model_families
from sterling.language.models.causal_lm import LanguageModel, qwen3_form, tiny
from sterling.language.models.model_families import plan_from_config
from sterling.language.models.model_folder import load, save
from sterling.language.scene import Message
from sterling.language.tokenizer import Tokenizer
from sterling.nets.attention.rotary import rotary_rates
from sterling.nets.transformer import TransformerForm
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language import base_model, resolve_language_settings
from sterling.types import Mistake

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("llama", "llama-biases", "qwen2", "qwen3", "mistral", "phi3", "smollm3", "olmo2")
WEIGHTS = "model.safetensors"


@pytest.fixture
def copied(tmp_path) -> Path:
    """A folder that may be spoiled."""
    return Path(shutil.copytree(FIXTURES / "qwen2", tmp_path / "qwen2"))


def change(path: Path, **values) -> None:
    """Other values in a JSON file; None takes one out."""
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def retold(path: Path, change) -> None:
    """Other tensors in a file of weights."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def same(left: LanguageModel, right: LanguageModel) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(a.dtype == b.dtype and bool((a == b).all()) for a, b in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(name):
    model, _ = load(FIXTURES / name)
    wanted = load_file(FIXTURES / name / "expected.safetensors")
    logits = model(jnp.asarray(wanted["ids"], jnp.int32))
    assert np.abs(wanted["logits"]).max() > 2.0
    np.testing.assert_allclose(logits, wanted["logits"], atol=1e-5, rtol=0.0)
    greedy = wanted["greedy"]
    chosen = model(jnp.asarray(greedy, jnp.int32))[:, 7:-1].argmax(-1)
    assert (np.asarray(chosen) == greedy[:, 8:]).all()


@pytest.mark.parametrize("name", NAMES)
def test_hugging_face_folder_round_trips(name, tmp_path):
    model, tokenizer = load(FIXTURES / name)
    save(tmp_path / "it", model, tokenizer)
    again, _ = load(tmp_path / "it")
    assert same(model, again)
    assert again.stack.form == model.stack.form
    stored, written = (load_file(each / WEIGHTS) for each in (FIXTURES / name, tmp_path / "it"))
    assert stored.keys() == written.keys()
    assert all((stored[key] == written[key]).all() for key in stored)
    first, second = (
        json.loads((each / "config.json").read_text())
        for each in (FIXTURES / name, tmp_path / "it")
    )
    assert {key: second[key] for key in first if key != "architectures"} == {
        key: first[key] for key in first if key != "architectures"
    }


@pytest.mark.parametrize("name", ["llama-biases", "qwen2", "qwen3", "phi3", "smollm3", "olmo2"])
def test_hugging_face_config_is_written_from_the_transformer_form(name, tmp_path):
    model, tokenizer = load(FIXTURES / name)
    save(tmp_path / "it", dataclasses.replace(model, origin=""), tokenizer)
    again, _ = load(tmp_path / "it")
    assert same(model, again)
    np.testing.assert_allclose(again.stack.form.rates, model.stack.form.rates, rtol=1e-9)
    assert model_families.plan_of_model(again).family == name.split("-")[0]


def test_tied_model_with_another_head_keeps_it_with_one_warning(copied, capsys):
    ids = jnp.arange(8)[None]

    def own_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"][::-1].copy()

    def copied_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()

    retold(copied / WEIGHTS, copied_head)
    tied, _ = load(copied)
    assert tied.head is None
    assert not capsys.readouterr().err
    retold(copied / WEIGHTS, own_head)
    model, tokenizer = load(copied)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "lm_head.weight differs from the embedding" in said
    save(copied.parent / "saved", model, tokenizer)
    change(copied / "config.json", tie_word_embeddings=False)
    for other in (load(copied)[0], load(copied.parent / "saved")[0]):
        assert same(model, other)
        np.testing.assert_array_equal(model(ids), other(ids))
    assert not capsys.readouterr().err
    assert not np.allclose(model(ids), tied(ids))


def test_nano_model_is_saved_as_sharded_safetensors(tmp_path):
    tokenizer = Tokenizer.characters()
    model = tiny(tokenizer.vocabulary, "nano")
    save(tmp_path / "one", model, tokenizer)
    save(tmp_path / "parts", model, tokenizer, shard=50_000)
    files = sorted(tmp_path.glob("parts/*.safetensors"))
    assert len(files) > 3
    assert files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    assert sum(file.stat().st_size <= 60_000 for file in files) >= len(files) - 1
    for folder in ("one", "parts"):
        again, reader = load(tmp_path / folder)
        assert same(model, again)
        assert again.stack.form == model.stack.form
        assert reader.encode_opening([Message("user", "a")]) == tokenizer.encode_opening(
            [Message("user", "a")]
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "parts"]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_model_folder_loads_and_saves_half_precision(dtype, tmp_path):
    model, tokenizer = load(FIXTURES / "llama", dtype=dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype(dtype)}
    save(tmp_path / "half", model, tokenizer)
    again, _ = load(tmp_path / "half")
    assert same(model, again)
    wide, _ = load(tmp_path / "half", dtype=jnp.float32)
    assert wide.embedding.dtype == jnp.float32
    wanted = load_file(FIXTURES / "llama" / "expected.safetensors")
    logits = again(jnp.asarray(wanted["ids"], jnp.int32))
    np.testing.assert_allclose(logits, wanted["logits"], atol=0.3)
    with pytest.raises(Mistake, match="int32 are not supported"):
        load(FIXTURES / "llama", dtype=jnp.int32)


def test_older_rope_config_keys_are_read_alike():
    for name in ("llama", "llama-biases", "qwen2"):
        new = json.loads((FIXTURES / name / "config.json").read_text())
        old = {key: value for key, value in new.items() if key != "rope_parameters"}
        rope = dict(new["rope_parameters"])
        old["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        older = old | {"rope_scaling": None if kind == "default" else rope | {"type": kind}}
        old |= {"rope_scaling": None if kind == "default" else rope | {"rope_type": kind}}
        assert plan_from_config(old, "") == plan_from_config(new, "") == plan_from_config(older, "")


def test_llama3_rope_scaling_stretches_low_frequencies_only():
    config = json.loads((FIXTURES / "llama" / "config.json").read_text())
    found = plan_from_config(config, "").form.rates
    plain = rotary_rates(8)
    assert found[0] == plain[0]
    assert plain[1] / 8 < found[1] < plain[1]
    np.testing.assert_allclose(np.asarray(found[2:]) * 8, plain[2:])


def test_model_folder_save_is_atomic(tmp_path, monkeypatch):
    tokenizer = Tokenizer.characters()
    model = tiny(tokenizer.vocabulary, "nano")
    save(tmp_path / "it", model, tokenizer)
    before = (tmp_path / "it" / WEIGHTS).read_bytes()
    with pytest.raises(Mistake, match="already exists"):
        save(tmp_path / "it", model, tokenizer)

    def full(folder) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(tokenizer, "write", full)
    with pytest.raises(OSError, match="no space"):
        save(tmp_path / "it", model, tokenizer, overwrite=True)
    assert (tmp_path / "it" / WEIGHTS).read_bytes() == before
    monkeypatch.undo()
    other = tiny(tokenizer.vocabulary, "nano", key=jax.random.key(1))
    save(tmp_path / "it", other, tokenizer, overwrite=True)
    assert same(load(tmp_path / "it")[0], other)
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_unsupported_model_cannot_be_saved_as_hugging_face_folder(tmp_path):
    tokenizer = Tokenizer.characters()
    key = jax.random.key(0)
    gpt = LanguageModel.create(key, tokenizer.vocabulary, 32, TransformerForm(4, 4, 8, 64), 1)
    with pytest.raises(Mistake, match="cannot be saved as a Hugging Face folder"):
        save(tmp_path / "it", gpt, tokenizer)
    form = dataclasses.replace(qwen3_form(32, 4, 2), rates=(1.0, 0.5, 0.4, 0.1))
    odd = LanguageModel.create(key, tokenizer.vocabulary, 32, form, 1)
    with pytest.raises(Mistake, match=r"config\.json cannot state these"):
        save(tmp_path / "it", odd, tokenizer)
    with pytest.raises(Mistake, match="the tokenizer has 103 tokens, the model 8"):
        save(tmp_path / "it", tiny(8, "nano"), tokenizer)
    assert not list(tmp_path.iterdir())


CONFIGS = {
    "mistrall": ({"model_type": "llma"}, "did you mean llama"),
    "no type": ({"model_type": None}, "architecture None is not supported"),
    "no width": ({"hidden_size": None}, "hidden_size is missing"),
    "true": ({"num_hidden_layers": True}, "num_hidden_layers is True, not a count"),
    "endless": ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, not a count"),
    "no count": ({"num_hidden_layers": "two"}, "num_hidden_layers is 'two'"),
    "heads": ({"num_key_value_heads": 3}, "do not fit together"),
    "window": ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
    "old window": ({"layer_types": None, "use_sliding_window": True, "sliding_window": 8,
                    "max_window_layers": 1}, "sliding window"),
    "activation": ({"hidden_act": "gelu"}, "activation 'gelu'"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantised"),
    "yarn": ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "type 'yarn'"),
    "rope": ({"rope_parameters": {"rope_type": "llama3"}}, "type llama3: missing or invalid"),
    "no factor": ({"rope_scaling": {"type": "linear", "factor": 0}}, "positions of type linear"),
    "part": ({"partial_rotary_factor": 0.5}, "partly rotary"),
    "vocabulary": ({"vocab_size": 40}, "the tokenizer has 48 tokens, the model 40"),
    "wider": ({"hidden_size": 64}, "but config.json states"),
    "deeper": ({"num_hidden_layers": 3}, "no tensor model.layers.2.input_layernorm.weight"),
    "shallower": ({"num_hidden_layers": 1}, "no place in the model that config.json"),
    "a list for a type": ({"model_type": ["qwen2"]}, "is not supported"),
    "epsilon": ({"rms_norm_eps": "1e-6 or so"}, "rms_norm_eps is '1e-6 or so'"),
    "below 0": ({"rms_norm_eps": -1}, "rms_norm_eps is -1"),
    "rope in words": ({"rope_scaling": "linear"}, "rotary positions are not a JSON object"),
    "layers by number": ({"layer_types": 2}, "sliding window"),
    "layers in lists": ({"layer_types": [["full_attention"]]}, "sliding window"),
    "window without layers": ({"layer_types": None, "use_sliding_window": True,
                               "sliding_window": 8, "max_window_layers": "all"}, "sliding window"),
    "untied": ({"tie_word_embeddings": False}, "no tensor lm_head.weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFIGS)
def test_unsupported_model_config_is_refused(case, copied):
    values, said = CONFIGS[case]
    change(copied / "config.json", **values)
    with pytest.raises(Mistake) as error:
        load(copied)
    line = str(error.value)
    assert said in line
    assert str(copied) in line
    assert "\n" not in line
    assert "; " in line


def test_unused_sliding_window_config_is_ignored(copied):
    unused = {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 1}
    plain = load(copied)[0]
    change(copied / "config.json", layer_types=None, **unused)
    ids = jnp.arange(12, dtype=jnp.int32)[None]  # longer than the window would be
    np.testing.assert_array_equal(load(copied)[0](ids), plain(ids))


def test_damaged_weights_are_refused(copied):
    path = copied / WEIGHTS
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(Mistake, match=r"model\.safetensors is damaged"):
        load(copied)
    path.write_bytes(b"")
    with pytest.raises(Mistake, match=r"model\.safetensors is damaged"):
        load(copied)
    path.unlink()
    with pytest.raises(Mistake, match=r"model\.safetensors is missing"):
        load(copied)
    (copied / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(Mistake, match="as pickles"):
        load(copied)


def test_model_tensors_of_wrong_shape_or_name_are_refused(copied):
    path, whole = copied / WEIGHTS, (copied / WEIGHTS).read_bytes()
    name = "model.layers.1.mlp.up_proj.weight"
    retold(path, lambda each: each.update({name: each[name][:-1]}))
    wrong = r"up_proj\.weight has shape \[47, 32\], but config.json states"
    with pytest.raises(Mistake, match=wrong):
        load(copied)
    path.write_bytes(whole)
    retold(path, lambda each: each.pop(name))
    with pytest.raises(Mistake, match=f"has no tensor {name}"):
        load(copied)
    path.write_bytes(whole)
    retold(path, lambda each: each.update({name: each[name].astype(np.int8)}))
    with pytest.raises(Mistake, match="is I8; use"):
        load(copied)
    path.write_bytes(whole)
    retold(path, lambda each: each.update({"model.extra": each[name]}))
    with pytest.raises(Mistake, match=r"model\.extra has no place"):
        load(copied)
    path.write_bytes(whole)
    spare = {"lm_head.weight": np.zeros((64, 32), np.float32)}
    spare["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)
    retold(path, lambda each: each.update(spare))  # copies that older versions wrote
    load(copied)


def test_safetensors_shards_that_contradict_their_index_are_refused(tmp_path):
    tokenizer = Tokenizer.characters()
    save(tmp_path / "it", tiny(tokenizer.vocabulary, "nano"), tokenizer, shard=50_000)
    index = tmp_path / "it" / "model.safetensors.index.json"
    right = json.loads(index.read_text())["weight_map"]
    name = "model.norm.weight"
    other = max(set(right.values()) - {right[name]})
    change(index, weight_map=right | {name: other})
    with pytest.raises(Mistake, match=f"lacks {name}"):
        load(tmp_path / "it")
    change(index, weight_map=right | {name: "../model.safetensors"})
    with pytest.raises(Mistake, match="no weight_map"):
        load(tmp_path / "it")
    change(index, weight_map=right | {name: ""})
    with pytest.raises(Mistake, match="no weight_map"):
        load(tmp_path / "it")
    change(index, weight_map=right)
    (tmp_path / "it" / other).unlink()
    with pytest.raises(Mistake, match=f"{other} is missing"):
        load(tmp_path / "it")


def test_base_model_config_of_a_run_is_validated(copied):
    change(copied / "config.json", max_position_embeddings="many")
    made = resolve_settings(
        "sft", "copy-text", updates=1, speech=LanguageSettings(model=str(copied))
    )
    asked = dataclasses.replace(made, context=64)
    assert (
        resolve_language_settings.warn_of_long_context(asked) is asked
    )  # a model that does not say its length is not too short
    other = Path(shutil.copytree(copied, copied.with_name("other")))
    (other / "config.json").write_text("{")
    with pytest.raises(Mistake, match=r"config\.json is not JSON"):
        base_model.starting_model(str(other))


def test_invalid_model_folders_are_refused(tmp_path, copied):
    with pytest.raises(Mistake, match="is not a folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Mistake, match=r"config\.json is missing or empty"):
        load(tmp_path / "empty")
    (copied / "config.json").write_text("{'model_type': 1}")
    with pytest.raises(Mistake, match=r"config\.json is not JSON"):
        load(copied)
    (tmp_path / "file").write_text("")
    tokenizer = Tokenizer.characters()
    with pytest.raises(Mistake, match="already exists"):
        save(tmp_path / "file", tiny(tokenizer.vocabulary, "nano"), tokenizer, overwrite=True)


def test_language_package_exports_load_and_tokenizer():
    assert language.load is load
    assert language.Tokenizer is Tokenizer
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        language.laod  # noqa: B018
