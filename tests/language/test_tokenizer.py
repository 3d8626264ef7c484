"""Tokens of texts and of conversations: exact, and never made twice."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from sterling.language.chat_template import ChatTemplate
from sterling.language.scene import Message
from sterling.language.tokenizer import PAD, UNKNOWN, Tokenizer
from sterling.language.worlds.held_out_questions import is_held_out
from sterling.types import Mistake

CHATML = """
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
    {{- '<|im_start|>system\nBe kind.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
LLAMA = """
{{- bos_token }}
{%- for message in messages %}
    {%- set role = 'ipython' if message.role == 'tool' else message.role %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
THINKING = """
{%- for message in messages %}
    {%- if message.role == 'assistant' and not loop.last %}
        {{- '<|im_start|>assistant\n' + message.content.split('</think>')[-1] + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n<think>\n</think>\n' + message.content + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin|>", "<|start_header_id|>")
SPECIAL += ("<|end_header_id|>", "<|eot_id|>", "<|fim_pad|>")
TALK = [Message("user", "what\n\nis 2"), Message("assistant", "is 2\n")]
TALK += [Message("tool", "\nno"), Message("user", "is it"), Message("assistant", "4")]
TALK += [Message("user", "right")]


def byte_level() -> tokenizers.Tokenizer:
    """A BPE whose merges join what stands at the seams of turns: two new lines, a word's space."""
    merges = [("Ċ", "Ċ"), ("i", "s"), ("Ġ", "is"), ("Ġ", "2"), ("ĊĊ", "Ċ")]
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    made = tokenizers.Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    return made


def folder_of(path: Path, settings: dict, **files: dict) -> Path:
    """A Hugging Face folder with a tokenizer in it."""
    byte_level().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def joined(tokenizer: Tokenizer, talk: list[Message]) -> list[int]:
    """The conversation turn by turn, as an agent has it: what it says stays as it was sampled."""
    ids: list[int] = []
    new: list[Message] = []
    for message in talk:
        if message.role != "assistant":
            new.append(message)
            continue
        ids += tokenizer.encode_continuation(new) if ids else tokenizer.encode_opening(new)
        ids += [*tokenizer.encode(message.content), tokenizer.end]
        new = []
    return ids + (tokenizer.encode_continuation(new) if ids else tokenizer.encode_opening(new))


@pytest.mark.parametrize("make", [Tokenizer.characters, Tokenizer.bytes])
def test_tokenizer_encode_decode_round_trips(make):
    tokenizer = make()
    text = "sort 3 1\t2\n  is <|it|>?" if make == Tokenizer.bytes else "sort 3 1 2\n  is <|it|>?"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("a b")) == 3
    assert tokenizer.encode("") == []
    assert max(tokenizer.encode("".join(map(chr, range(32, 127))))) < tokenizer.vocabulary
    assert tokenizer.decode([tokenizer.end, *tokenizer.encode("x"), tokenizer.pad, 9999]) == "x"


def test_byte_tokenizer_encodes_any_unicode():
    tokenizer = Tokenizer.bytes()
    assert tokenizer.decode(tokenizer.encode("naïve 数学 🎲")) == "naïve 数学 🎲"
    assert tokenizer.encode("half \ud83d") == tokenizer.encode("half ?")
    assert is_held_out([Message("user", "half \ud83d")], 1.0)


def test_unknown_characters_are_one_token_each():
    tokenizer = Tokenizer.characters("abc")
    ids = tokenizer.encode("aéüb")
    assert len(ids) == 4
    assert ids[1] == ids[2] == tokenizer.encode(UNKNOWN)[0]
    assert tokenizer.decode(ids) == "ab"


def test_built_in_tokenizer_has_one_token_per_role():
    tokenizer = Tokenizer.characters("abcd 2+")
    opened = tokenizer.encode_opening([Message("user", "2+2")])
    assert len(opened) == 5
    assert tokenizer.encode_continuation([Message("tool", "ab")])[-1] == opened[-1]
    assert len(tokenizer.encode_continuation([Message("tool", "ab")])) == 4
    whole = [Message("user", "2+2"), Message("assistant", "a"), Message("user", "b")]
    text = "<|user|>2+2<|assistant|>a<|end|><|user|>b<|assistant|>"
    assert joined(tokenizer, whole) == tokenizer.encode(text)
    with pytest.raises(Mistake, match="judge"):
        tokenizer.encode_opening([Message("judge", "a")])
    with pytest.raises(Mistake, match="there are none"):
        Tokenizer.characters().encode_continuation([])


@pytest.mark.parametrize(
    ("template", "end"), [(CHATML, "<|im_end|>"), (LLAMA, "<|eot_id|>"), ("", "<|endoftext|>")]
)
def test_tokenizer_turn_by_turn_equals_the_whole_conversation(tmp_path, template, end):
    """Llama 3's trims what is said, so that turn is compared without its new lines."""
    settings = {"eos_token": "<|endoftext|>", "bos_token": {"content": "<|begin|>"}}
    tokenizer = Tokenizer.read(folder_of(tmp_path, settings | {"chat_template": template}))
    assert tokenizer.end == tokenizer.encode(end)[0]
    talk = [Message(m.role, m.content.strip()) for m in TALK] if template == LLAMA else TALK
    whole = tokenizer.encode_opening(talk)
    assert joined(tokenizer, talk) == whole
    text = tokenizer.decode(whole)
    assert "right" in text
    assert tokenizer.pad not in whole


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_chat_template_tokens_equal_transformers(name):
    """Recorded from apply_chat_template by benchmarks/parity/folders.py."""
    folder = Path(__file__).parent / "fixtures" / name
    tokenizer = Tokenizer.read(folder)
    recorded = json.loads((folder / "talk.json").read_text())
    talk = [Message(role, content) for role, content in recorded["talk"]]
    assert len(recorded["tokens before the assistant"]) == 4
    for end, ids in recorded["tokens before the assistant"]:
        assert joined(tokenizer, talk[:end]) == ids


def test_tokenizer_omits_a_null_bos_token(tmp_path):
    settings = {"eos_token": "<|eot_id|>", "bos_token": None, "chat_template": LLAMA}
    tokenizer = Tokenizer.read(folder_of(tmp_path, settings))
    opened = tokenizer.encode_opening([Message("user", "a")])
    assert opened[0] == tokenizer.encode("<|start_header_id|>")[0]


def test_chat_template_thoughts_do_not_change_continuation_tokens(tmp_path):
    settings = {"eos_token": "<|im_end|>", "chat_template": THINKING}
    tokenizer = Tokenizer.read(folder_of(tmp_path, settings))
    between = tokenizer.encode_continuation([Message("user", "mark")])
    wanted = "\n<|im_start|>user\nmark<|im_end|>\n<|im_start|>assistant\n"
    assert between == tokenizer.encode(wanted)


WITH_TOOLS = """
{%- set told = messages[0].content if messages[0].role == 'system' else 'be helpful' %}
{{- 'system: ' + told }}
{%- for tool in tools or [] %}{{- '|' + tool | tojson }}{%- endfor %}
{%- for message in messages %}
    {%- if message.role != 'system' %}{{- '|' + message.role + ': ' + message.content }}{%- endif %}
{%- endfor %}"""
ASKS_FOR_CALLS = WITH_TOOLS + "{%- if tools %}{{- '|write <tool_call>' }}{%- endif %}"
SCHEMA = '{"type": "function", "function": {"name": "é", "parameters": {"properties": {}}}}'


def test_chat_template_shows_tool_schemas():
    template = ChatTemplate(ASKS_FOR_CALLS, {}, "it")
    asked = Message("user", "1+1=")
    for system, told in (("be brief", "be brief"), ("", "be helpful")):
        shown = template.render([Message("system", system, (SCHEMA,)), asked], reply=True)
        assert shown == f"system: {told}|{SCHEMA}|user: 1+1=|write <tool_call>"
    assert template.render([asked], reply=True) == "system: be helpful|user: 1+1="


@pytest.mark.parametrize("source", [WITH_TOOLS, CHATML, LLAMA])
def test_chat_template_of_another_call_format_describes_tools_in_text(source):
    """Also by a template that shows tools, but asks for calls in another form."""
    talk = [Message("system", "be brief", (SCHEMA,)), Message("user", "1+1=")]
    shown = ChatTemplate(source, {"bos_token": ""}, "it").render(talk, reply=True)
    assert f"be brief\nYou have tools.\n{SCHEMA}\nCall one with <tool_call>" in shown
    assert shown.count(SCHEMA) == 1


def test_tokenizer_pad_token_is_never_a_stop_token(tmp_path):
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML}
    generation = {"eos_token_id": [2, 0]}
    path = folder_of(tmp_path, settings, generation_config=generation)
    tokenizer = Tokenizer.read(path)
    assert tokenizer.stops == (2, 0)
    assert tokenizer.pad == tokenizer.encode("<|fim_pad|>")[0]
    (path / "generation_config.json").unlink()
    assert Tokenizer.read(path).pad == 0


@pytest.mark.parametrize("name", ["generation_config", "config"])
@pytest.mark.parametrize("number", [2, [2, 0]])
def test_end_token_may_be_named_by_the_configuration_of_the_model_alone(tmp_path, name, number):
    path = folder_of(tmp_path, {"chat_template": CHATML}, **{name: {"eos_token_id": number}})
    tokenizer = Tokenizer.read(path)
    assert tokenizer.encode_plain("a")[-1] == 2
    assert tokenizer.stops == ((2,) if number == 2 else (2, 0))
    settings = {"chat_template": CHATML, "eos_token": "<|endoftext|>"}
    path = folder_of(tmp_path, settings, **{name: {"eos_token_id": number}})
    assert Tokenizer.read(path).encode_plain("a")[-1] == 0  # the tokenizer's own comes first


def test_a_tokenizer_comes_back_from_its_folder(tmp_path):
    tokenizer = Tokenizer.characters("abc \n")
    tokenizer.write(tmp_path)
    again = Tokenizer.read(tmp_path)
    talk = [Message("system", "a"), Message("user", "b\nc")]
    assert again.encode_opening(talk) == tokenizer.encode_opening(talk)
    assert again.encode_continuation(talk) == tokenizer.encode_continuation(talk)
    kept = ("vocabulary", "pad", "end", "stops")
    assert [getattr(again, name) for name in kept] == [getattr(tokenizer, name) for name in kept]
    assert tokenizer.encode(PAD) == [tokenizer.pad]


def test_tokenizer_takes_the_default_of_several_chat_templates(tmp_path):
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": CHATML}]
    settings = {"eos_token": "<|im_end|>", "chat_template": named}
    tokenizer = Tokenizer.read(folder_of(tmp_path, settings))
    assert (
        tokenizer.encode_opening([Message("user", "a")])[0] == tokenizer.encode("<|im_start|>")[0]
    )


def test_chat_template_supports_the_jinja_extensions_of_transformers():
    source = (
        "{% for message in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
        "{% generation %}{{ message | tojson }}{% endgeneration %}{% endfor %}"
        "{% set kept = namespace(n=1) %}{% set kept.n = kept.n + 1 %}{{ kept.n }}"
        "{{ dict(a='<').a }}{{ strftime_now('%Y')[:2] }}"
    )
    said = ChatTemplate(source, {}, "it").render([Message("user", "<é>")] * 3, reply=False)
    assert said == '{"role": "user", "content": "<é>"}' * 2 + "2<20"


@pytest.mark.parametrize(
    "attack",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ dict.__init__.__globals__ }}",
        "{% set it = namespace() %}{% set it.__class__ = 1 %}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no') }}",
    ],
)
def test_chat_template_jinja_sandbox_refuses_attacks(attack):
    with pytest.raises(Mistake, match="it refuses a conversation of user"):
        ChatTemplate(attack, {}, "it").render([Message("user", "a")], reply=False)


def test_broken_tokenizer_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(Mistake, match=r"no tokenizer\.json; open"):
        Tokenizer.read(tmp_path)
    path = folder_of(tmp_path, {"chat_template": CHATML})
    with pytest.raises(Mistake, match="no end token"):
        Tokenizer.read(path)
    (path / "tokenizer_config.json").write_text('{"eos_token": ')
    with pytest.raises(Mistake, match=r"tokenizer_config\.json is not JSON"):
        Tokenizer.read(path)
    (path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(Mistake, match="holds list"):
        Tokenizer.read(path)
    broken = {"eos_token": "<|im_end|>", "chat_template": "{% if %}"}
    (path / "tokenizer_config.json").write_text(json.dumps(broken))
    with pytest.raises(Mistake, match="cannot be read"):
        Tokenizer.read(path)
    text = (path / "tokenizer.json").read_text()
    (path / "tokenizer.json").write_text(text[: len(text) // 2])
    with pytest.raises(Mistake, match=r"tokenizer\.json is damaged") as error:
        Tokenizer.read(path)
    assert "\n" not in str(error.value)
    with pytest.raises(Mistake, match="alphabet"):
        Tokenizer.characters("")


@pytest.mark.parametrize("odd", [5, ["a"], {"a": 1}, [{"name": "default", "template": 5}]])
def test_chat_template_that_is_not_text_is_refused(tmp_path, odd):
    path = folder_of(tmp_path, {"eos_token": "<|im_end|>", "chat_template": odd})
    with pytest.raises(Mistake, match="chat_template is neither a text"):
        Tokenizer.read(path)
    (path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(Mistake, match=r"chat_template\.jinja is not UTF-8"):
        Tokenizer.read(path)


def test_tokenizer_ignores_special_tokens_of_wrong_type(tmp_path):
    settings = {"eos_token": "<|im_end|>", "pad_token": 7, "chat_template": CHATML}
    path = folder_of(tmp_path, settings, generation_config={"eos_token_id": [True, -1]})
    tokenizer = Tokenizer.read(path)
    assert len(tokenizer.stops) == 1  # a truth is no token, nor is what is below 0
    (path / "tokenizer_config.json").write_text('{"eos_token": 5}')
    with pytest.raises(Mistake, match="no end token"):
        Tokenizer.read(path)
