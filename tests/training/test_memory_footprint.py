"""Sizes that no machine has are refused in one line, before anything is made."""

import json

import pytest

import sterling
from sterling.experience import store_memory_check
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.runtime import memory_footprint
from sterling.types import Mistake

BILLION = 10**9
SMALL = {"length": 16, "minibatch": 64, "epochs": 1, "width": 8, "preset": False}


@pytest.mark.parametrize(
    ("algorithm", "world", "budget", "fields"),
    [
        ("ppo", "probe:both", {"steps": 8192}, {"width": BILLION}),
        ("ppo", "probe:both", {"steps": 8192}, {"width": 10**15}),
        ("ppo", "probe:both", {"steps": 10**14}, {"length": BILLION}),
        ("ppo", "probe:both", {"steps": 10**14}, {"envs": 10**10}),
        ("dqn", "probe:both", {"steps": 10**5}, {"batch": 10**10}),
        ("dqn", "probe:both", {"steps": 10**5}, {"n_step": 10**10}),
        ("dqn", "probe:both", {"steps": 10**10}, {"capacity": 10**13, "envs": 8}),
        ("sac", "probe:both-continuous", {"steps": 10**5}, {"width": BILLION}),
        ("grpo", "reverse-text", {"updates": 5}, {"limit": 10**10}),
        ("grpo", "reverse-text", {"updates": 5}, {"slots": 10**10}),
        ("grpo", "reverse-text", {"updates": 5}, {"prompts": 10**10}),
        ("grpo", "reverse-text", {"updates": 5}, {"lora": 10**10}),
        ("sft", "reverse-text", {"updates": 5}, {"batch": 10**11}),
        ("sft", "reverse-text", {"updates": 5}, {"context": 10**11}),
        ("sft", "reverse-text", {"updates": 5}, {"examples": 10**13}),
    ],
)
def test_sizes_beyond_memory_are_refused_in_one_line(algorithm, world, budget, fields, tmp_path):
    with pytest.raises(Mistake, match=r"needs?|needed") as caught:
        sterling.train(algorithm, world, **budget, **fields, preset=False, out=tmp_path / "run")
    said = str(caught.value)
    assert "\n" not in said
    assert "GB" in said
    assert next(iter(fields)) in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [1e9, 10**12])
def test_evaluate_episodes_above_one_million_is_refused_before_training(number, tmp_path):
    said = "evaluate_episodes must be at most 1,000,000"
    with pytest.raises(Mistake, match=said):
        sterling.train(
            "ppo", "probe:both", steps=256, evaluate_episodes=number, out=tmp_path / "run", **SMALL
        )
    assert not (tmp_path / "run").exists()
    made = sterling.train("ppo", "probe:both", steps=256, evaluate_episodes=0, **SMALL)
    with pytest.raises(Mistake, match="episodes must be at most 1,000,000"):
        made.evaluate(number)


def test_evaluation_episodes_beyond_memory_are_refused(monkeypatch):
    settings = resolve_settings(
        "ppo", "probe:both", steps=8192, evaluate_episodes=10**6, preset=False
    )
    monkeypatch.setattr(memory_footprint, "free_bytes", lambda: 7_000_000)
    with pytest.raises(Mistake, match=r"episodes of evaluation .evaluate_episodes=1_000_000"):
        memory_footprint.check_memory(settings)


LLAMA = {
    **{"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 32_000},
    **{"num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28_672},
    "rms_norm_eps": 1e-5,
}  # of 70 billion numbers


@pytest.mark.parametrize(("lora", "needed"), [(0, "828 GB"), (8, "138 GB")])
def test_base_model_beyond_memory_is_refused_before_it_is_read(tmp_path, monkeypatch, lora, needed):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr(memory_footprint, "free_bytes", lambda: 64 * 10**9)
    with pytest.raises(Mistake, match=f"the model in .*weights=68_.*{needed} are needed"):
        sterling.train("sft", "reverse-text", updates=5, model=str(tmp_path), lora=lora)


def test_networks_too_deep_to_be_traced_are_refused():
    with pytest.raises(Mistake, match="depth must be at most 1,000"):
        sterling.train("ppo", "probe:both", steps=1024, depth=10**6)


def test_edited_config_width_beyond_memory_is_refused_on_load_and_resume(tmp_path):
    path = tmp_path / "run"
    sterling.train("ppo", "probe:both", steps=256, out=path, evaluate_episodes=0, **SMALL)
    config = json.loads((path / "config.json").read_text())
    config["config"]["width"] = BILLION
    (path / "config.json").write_text(json.dumps(config))
    for use in (sterling.load, sterling.resume):
        with pytest.raises(Mistake, match=r"width=1_000_000_000.* GB"):
            use(path)


@pytest.mark.parametrize(("free", "refused"), [(200_000, True), (2_000_000, False)])
def test_agents_are_compared_with_the_memory_that_is_free(free, refused, monkeypatch):
    settings = resolve_settings("ppo", "probe:both", steps=8192, seeds=2, preset=False)
    shapes = {
        "weights": memory_footprint.jax.ShapeDtypeStruct((2, 100_000), "float32")
    }  # 800,000 bytes
    monkeypatch.setattr(memory_footprint, "free_bytes", lambda: free)
    if refused:
        with pytest.raises(Mistake, match="agents of 2 seeds"):
            memory_footprint.check_agent_memory(settings, shapes)
    else:
        memory_footprint.check_agent_memory(settings, shapes)


def test_unknown_free_memory_disables_the_memory_check(monkeypatch):
    absurd = resolve_settings("ppo", "probe:both", steps=10**14, fields={"length": BILLION})
    with pytest.raises(Mistake, match="length=1_000_000_000"):
        memory_footprint.check_memory(absurd)
    monkeypatch.setattr(memory_footprint, "free_bytes", lambda: None)
    memory_footprint.check_memory(absurd)


def test_ordinary_settings_pass_the_memory_check():
    free = store_memory_check.free_bytes()
    assert free is None or free > 0
    memory_footprint.check_memory(resolve_settings("ppo", "HalfCheetah-v5", steps=10**6, seeds=5))
    memory_footprint.check_memory(resolve_settings("dqn", "CartPole-v1", steps=10**6, seeds=10))
