"""Language runs on a file of texts, without an environment, and the first lines that they print."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import sterling
from sterling import language
from sterling.language.tokenizer import Tokenizer
from sterling.report.live.live_progress import summary_lines
from sterling.training.api import settings_from_arguments as settings_of
from sterling.training.language.resolve_language_settings import resolve_language_settings
from sterling.training.language.text_world import text_world
from sterling.training.trained_run import run_return_bounds
from sterling.types import Mistake

QWEN2 = Path(__file__).parents[1] / "language" / "fixtures" / "qwen2"
SAID = {"prompt": "what is 2", "response": "it is 2"}
PAIR = {"prompt": "what is 2", "chosen": "2", "rejected": "4"}


def write(folder, *records):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return str(path)


def begun(algorithm, path, **asked):
    return resolve_language_settings(
        settings_of({"algorithm": algorithm, "texts": path, "batch": 2} | asked)
    )


@pytest.mark.parametrize(("algorithm", "record"), [("sft", SAID), ("dpo", PAIR), ("reward", PAIR)])
def test_texts_alone_need_no_environment_and_no_budget(tmp_path, algorithm, record):
    settings = begun(algorithm, write(tmp_path, *[record] * 5), model=str(QWEN2))
    assert (settings.environment, settings.evaluate_episodes) == ("", 0)
    assert settings.updates == 8  # three passes over 5 texts in batches of 2
    longest = len(Tokenizer.read(QWEN2).encode_opening([]))  # the beginning of an answer
    assert settings.context > longest + 32
    assert run_return_bounds(settings) is None
    with pytest.raises(Mistake, match="learned from texts alone and has no environment"):
        text_world(settings)


def test_context_of_plain_texts_holds_the_longest_one_and_an_answer(tmp_path):
    path = write(tmp_path, {"text": "a"}, {"text": "b" * 40}, SAID)
    assert begun("sft", path, model="nano", updates=2, limit=7).context == 48  # 40, end, 7


def test_texts_with_a_budget_keep_it(tmp_path):
    path = write(tmp_path, SAID)
    assert begun("sft", path, model="nano", updates=2).updates == 2
    assert begun("sft", path, model="nano", learn=4).updates == 4  # at least one iteration


def test_first_line_of_a_language_run_names_model_parameters_and_template(tmp_path, capsys):
    begun("sft", write(tmp_path, SAID), model=str(QWEN2), updates=3)
    first, texts, alone = capsys.readouterr().err.splitlines()
    count = sum(each.size for each in load_file(QWEN2 / "model.safetensors").values())
    assert first == (
        f"model {QWEN2} begins from trained weights: {count:,} parameters, all trained; "
        "chat template: the model's own; lr 1e-05 (--lr changes it)"
    )
    assert texts == "texts: 1 in texts.jsonl; 3 updates of 2 texts pass over them 6 times"
    assert alone.startswith("no environment is named, so answers are not evaluated")


@pytest.mark.parametrize(
    ("algorithm", "asked", "lr"),
    [
        ("sft", {}, 1e-5),
        ("sft", {"lora": 2}, 1e-4),
        ("sft", {"lr": 1e-3}, 1e-3),
        ("sft", {"lora": 2, "lr": 1e-3}, 1e-3),
        ("sft", {"model": "nano"}, 1e-3),
        ("sft", {"model": "nano", "lora": 2}, 1e-3),
        ("reward", {}, 1e-5),
        ("dpo", {}, 1e-6),
        ("dpo", {"lora": 2}, 1e-5),
    ],
)
def test_step_size_of_a_trained_folder_is_small_unless_it_is_given(tmp_path, algorithm, asked, lr):
    path = write(tmp_path, SAID if algorithm == "sft" else PAIR)
    own = {"algorithm": algorithm, "texts": path, "model": str(QWEN2)}
    settings = settings_of(own | asked)
    assert settings.to_json()["config"]["lr"] == lr


def test_step_sizes_of_policy_and_critic_suit_a_trained_folder_and_a_run_keeps_the_usual_one(
    tmp_path,
):
    own = {"algorithm": "token-ppo", "environment": "reverse-text", "updates": 4}
    config = settings_of(own | {"model": str(QWEN2)}).config
    assert (config.lr, config.value_lr) == (1e-6, 1e-5)
    assert settings_of(own | {"model": str(QWEN2), "value_lr": 1e-4}).config.value_lr == 1e-4
    (tmp_path / "config.json").write_text(json.dumps({"algorithm": "sft"}))  # of a run
    assert settings_of(own | {"model": str(tmp_path)}).config.lr == 3e-4


@pytest.mark.parametrize(
    ("speech", "lr"),
    [
        ({"model": "nano", "lora": 2}, 3e-4),
        ({"model": str(QWEN2), "lora": 0}, 1e-6),
        ({"model": str(QWEN2), "lora": 2}, 1e-5),  # adapters that training goes on with
        ({"model": "removed", "lora": 0}, 1e-6),
    ],
)
def test_step_size_of_a_run_suits_the_model_that_its_first_run_began_from(tmp_path, speech, lr):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, began in ((first, speech), (second, {"model": str(first), "lora": 0})):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"algorithm": "sft", "speech": began}))
        asked = {"algorithm": "grpo", "environment": "reverse-text", "updates": 2}
        assert settings_of(asked | {"model": str(folder)}).config.lr == lr


def test_first_line_says_random_weights_lora_and_a_missing_template(tmp_path, capsys):
    path = write(tmp_path, SAID)
    begun("sft", path, lora=2)  # no model is given
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("model tiny begins from random weights (--model FOLDER")
    tokenizer = Tokenizer.characters()
    bare = tmp_path / "bare"
    language.save(bare, language.tiny(tokenizer.vocabulary, "nano"), tokenizer)
    (bare / "chat_template.jinja").unlink()
    config = json.loads((bare / "tokenizer_config.json").read_text())
    config.pop("chat_template")
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    begun("sft", path, model=str(bare), lora=2)
    first = capsys.readouterr().err.splitlines()[0]
    weights = load_file(bare / "model.safetensors")
    matrices = [each.shape for name, each in weights.items() if "_proj" in name]
    trained = sum(2 * (rows + columns) for rows, columns in matrices)
    total = sum(each.size for each in weights.values()) + trained
    assert f": {total:,} parameters, {trained:,} (LoRA adapters of rank 2) trained" in first
    assert "chat template: none in the folder, so messages are written as plain lines" in first


def test_first_line_comes_before_the_notice_of_unknown_characters(tmp_path, capsys):
    begun("sft", write(tmp_path, SAID | {"prompt": "Größe?"}), model="nano")
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("model nano-bytes begins from random weights")
    assert last.startswith("nano has no token for 'ö', 'ß'")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"algorithm": "sft", "levels": "3"}, "levels: sft has no environment that asks questions"),
        ({"algorithm": "sft", "evaluate_episodes": 3}, "evaluation needs one"),
        ({"algorithm": "sft", "evaluate_every": 3}, r"evaluation needs one.*--held-out 0\.1"),
        ({"algorithm": "grpo", "updates": 2}, "grpo learns from its own answers. Leave out texts"),
        ({"algorithm": "ppo", "steps": 100}, "ppo trains no language model"),
    ],
)
def test_texts_alone_refuse_what_needs_an_environment(tmp_path, asked, said):
    with pytest.raises(Mistake, match=said):
        settings_of({"texts": write(tmp_path, SAID)} | asked)


def test_language_run_without_environment_and_texts_is_refused():
    with pytest.raises(Mistake, match=r"needs an environment, or a dataset: .*also texts=FILE"):
        settings_of({"algorithm": "sft", "model": "nano"})


@pytest.mark.slow
def test_plain_texts_alone_are_learned_by_heart(tmp_path):
    small = {"batch": 2, "rise": 1, "lr": 1e-2, "limit": 8, "updates": 60}
    run = sterling.train("sft", texts=write(tmp_path, {"text": "abcabd"}), model="nano", **small)
    model, tokenizer = run.language_model()
    ids = np.asarray(tokenizer.encode_plain("abcabd"))
    assert model(ids[None])[0].argmax(-1)[:-1].tolist() == ids[1:].tolist()


@pytest.mark.slow
def test_texts_alone_lower_the_loss_and_the_model_answers(tmp_path):
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path, out = write(tmp_path, {"messages": talk}), tmp_path / "run"
    small = {"batch": 2, "rise": 1, "lr": 1e-2, "limit": 8, "updates": 60}
    run = sterling.train("sft", texts=path, model="nano", out=out, **small)
    assert run.policy("hi") == "hello"
    assert run.result["final"] == {}
    assert sterling.load(out).policy("hi") == "hello"
    assert sterling.resume(out, updates=62).result["updates"] == 62


@pytest.mark.parametrize(("more", "source"), [({"model": "nano"}, "texts"), ({}, "a dataset")])
def test_summary_says_what_a_run_without_environment_learned_from(more, source):
    result = {"algorithm": "bc", "environment": None, "seeds": [0], "wall_seconds": 1.0, **more}
    assert ("environment", f"none: trained from {source} alone") in summary_lines(result, None)
