"""Texts of a file as lines of tokens, and the draws of them."""

import json

import jax
import numpy as np
import pytest
from collected import collect

from sterling.experience.language.imitated_texts import Demonstrations, read_demonstrations
from sterling.language.engine.transcript import Transcript
from sterling.language.scene import Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.types import Mistake, Texts

TOKENIZER = Tokenizer.characters("abcdefghijklmnopqrstuvwxyz ")
VOICE = ChatSettings(TOKENIZER, limit=6, context=64)


def lines_of(folder, *records, voice=VOICE, kept_out=None):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return read_demonstrations(path, voice, kept_out)


def test_imitated_text_row_is_prompt_response_and_end_token(tmp_path):
    plain = {"prompt": "ab", "response": "ba"}
    for said, before in ({}, []), ({"system": "be kind"}, [Message("system", "be kind")]):
        (line,) = lines_of(tmp_path, plain | said)
        opening = TOKENIZER.encode_opening([*before, Message("user", "ab")])
        answer = [*TOKENIZER.encode("ba"), TOKENIZER.end]
        assert list(line.ids) == [*opening, *answer]
        assert list(line.own) == [False] * len(opening) + [True] * len(answer)
    with pytest.raises(Mistake, match=r"texts\.jsonl, record 1: 'system' must be a text"):
        lines_of(tmp_path, plain | {"system": 3})


def test_every_token_of_a_plain_text_is_learned_without_a_chat_template(tmp_path):
    (line,) = lines_of(tmp_path, {"text": "ab cd"})
    made = Demonstrations.from_transcripts([line], VOICE, Texts(1))
    row, ids = made.texts, [*TOKENIZER.encode("ab cd"), TOKENIZER.end]
    assert row.obs[0, :5].tolist() == ids[:-1]
    assert row.action[0][row.mask[0]].tolist() == ids[1:]
    with pytest.raises(Mistake, match=r"texts\.jsonl, record 1 is a plain text, in which no quest"):
        lines_of(tmp_path, {"text": "ab"}, kept_out=lambda opening: False)


def test_plain_text_begins_and_ends_with_the_special_tokens_of_its_tokenizer(tmp_path):
    TOKENIZER.write(tmp_path)
    path, begin = tmp_path / "tokenizer.json", TOKENIZER.encode("<|user|>")
    content = json.loads(path.read_text())
    special = {"id": "<|user|>", "ids": begin, "tokens": ["<|user|>"]}
    single = [
        {"SpecialToken": {"id": "<|user|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    content["post_processor"] = {
        "type": "TemplateProcessing", "single": single, "pair": [*single, single[1]],
        "special_tokens": {"<|user|>": special},
    }  # fmt: skip
    path.write_text(json.dumps(content))
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "bos_token": "<|user|>"}))
    tokenizer = Tokenizer.read(tmp_path)
    expected = [*begin, *TOKENIZER.encode("ab"), TOKENIZER.end]
    for text in ("ab", "<|user|>ab", "ab<|end|>", "<|user|>ab<|end|>"):
        assert tokenizer.encode_plain(text) == expected


def test_imitated_text_row_is_truncated_at_the_context_length(tmp_path):
    record = {"prompt": "ab", "response": "ba"}
    length = len(lines_of(tmp_path, record)[0].ids)
    for context, cut in ((length, False), (length - 1, True)):
        voice = ChatSettings(TOKENIZER, limit=6, context=context)
        assert lines_of(tmp_path, record, voice=voice)[0].cut == cut


def test_imitated_texts_leave_out_evaluation_questions(tmp_path):
    records = [{"prompt": x, "response": x} for x in ("ab", "cd")]
    lines = lines_of(tmp_path, *records, kept_out=lambda opening: opening[-1].content == "cd")
    assert [bool(line.failed) for line in lines] == [False, True]
    made = Demonstrations.from_transcripts(lines, VOICE, Texts(1))
    assert made.texts.mask.shape[0] == 1
    assert not any(line.failed for line in lines_of(tmp_path, *records))


def test_imitated_texts_leave_out_failed_truncated_and_empty_rows(tmp_path):
    records = [{"prompt": x, "response": x} for x in "abcd"]
    lines = lines_of(tmp_path, *records)
    lines[0].failed, lines[2].cut = "no", True
    lines.append(Transcript(4, 0))
    made = Demonstrations.from_transcripts(lines, VOICE, Texts(1))
    ids = [TOKENIZER.decode(np.asarray(made.texts.action[n])[mask].tolist())
           for n, mask in enumerate(np.asarray(made.texts.mask))]  # fmt: skip
    assert [text[0] for text in ids] == ["b", "d"]


def test_imitated_texts_are_drawn_uniformly(tmp_path):
    made = Demonstrations.from_transcripts(
        lines_of(tmp_path, *({"prompt": x, "response": x} for x in "abcde")), VOICE, Texts(2_000)
    )
    assert made.traced
    _, record = collect(made, None, jax.random.split(jax.random.key(0), 2))
    first = np.asarray(record.action)[np.asarray(record.mask)].reshape(4_000, -1)[:, 0]
    share = np.unique(first, return_counts=True)[1] / 4_000
    np.testing.assert_allclose(share, np.full(5, 0.2), atol=0.03)
