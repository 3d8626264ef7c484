"""Characters that a new model's alphabet lacks: its tokens become bytes, and it is said."""

import json

import pytest

import sterling
from sterling import language
from sterling.cli import main
from sterling.language.tokenizer import Tokenizer
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language import base_model, tokenizer_alphabet

TEXTS = [
    {"prompt": "Größe?", "response": "groß\tund — 日"},
    {"prompt": "what?", "response": "that"},
]
SMALL = {"batch": 2, "limit": 16, "updates": 1, "evaluate_episodes": 2}


def write(path, records):
    path.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return str(path)


def spelled(algorithm="sft", world="reverse-text", **asked):
    return tokenizer_alphabet.with_alphabet(
        resolve_settings(algorithm, world, updates=1, speech=LanguageSettings(**asked))
    ).speech


def test_texts_within_the_alphabet_keep_the_character_tokenizer(tmp_path, capsys):
    path = write(tmp_path / "texts.jsonl", TEXTS[1:])
    assert spelled(model="nano", texts=path).model == "nano"
    assert spelled(model="nano").model == "nano"
    assert spelled("grpo", model="nano").model == "nano"
    assert capsys.readouterr().err == ""


def test_jsonl_questions_are_all_checked_for_unknown_characters(tmp_path, capsys):
    plain = [{"prompt": f"{n}", "answer": "1"} for n in range(99)]
    path = write(tmp_path / "q.jsonl", [*plain, {"prompt": "x", "answer": "ü"}])
    assert spelled("grpo", path, model="nano").model == "nano-bytes"
    assert "nano has no token for 'ü' in 1 of 200 texts" in capsys.readouterr().err


def test_preference_pairs_are_checked_for_unknown_characters(tmp_path):
    pair = {"prompt": "a", "chosen": "é", "rejected": "e"}
    path = write(tmp_path / "pairs.jsonl", [pair])
    assert spelled("dpo", model="nano", texts=path).model == "nano-bytes"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("letters")
    texts = write(place / "texts.jsonl", TEXTS)
    out = place / "run"
    return sterling.train("sft", "reverse-text", model="nano", texts=texts, out=out, **SMALL)


@pytest.mark.slow
def test_unknown_characters_switch_the_new_model_to_a_byte_tokenizer(run, tmp_path, capsys):
    loaded = sterling.load(run.path)
    assert loaded.settings.speech.model == "nano-bytes"
    model, tokenizer = loaded.language_model()
    assert model.vocabulary == tokenizer.vocabulary == Tokenizer.bytes().vocabulary
    assert main(["export", str(run.path), str(tmp_path / "whole")]) == 0
    _, again = language.load(tmp_path / "whole")
    for text in (each for record in TEXTS for each in record.values()):
        assert again.decode(again.encode(text)) == text
        assert again.encode(text) == tokenizer.encode(text)
    assert sterling.resume(run.path, updates=2).settings.speech.model == "nano-bytes"
    assert capsys.readouterr().err == ""  # it was said when the run began


def test_pretrained_tokenizer_keeps_its_alphabet_and_warns(tmp_path, capsys):
    small = Tokenizer.characters("abcdefghijklmnopqrstuvwxyz ?:")
    language.save(tmp_path / "it", language.tiny(small.vocabulary, "nano"), small)
    path, folder = write(tmp_path / "texts.jsonl", TEXTS), str(tmp_path / "it")
    assert spelled(model=folder, texts=path).model == folder
    said = capsys.readouterr().err
    assert "has no token for 'G', 'ö', 'ß', '\\t', '—', '日' in 2 of 4 texts" in said
    assert said.count("\n") == 1
    assert base_model.starting_model(folder).tokenizer.unknown_characters("abc?") == ""
