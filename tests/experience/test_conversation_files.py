"""Conversations and preference pairs of files: the forms, the loss mask, and what is refused."""

import json
from pathlib import Path

import pytest

from sterling.experience.language.answer_pairs import PairSource, PreferencePair, read_pairs
from sterling.experience.language.conversation_files import read_comparisons, read_conversations
from sterling.experience.language.imitated_texts import read_demonstrations
from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.scene import Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.types import Comparisons, Mistake

QWEN2 = Path(__file__).parents[1] / "language" / "fixtures" / "qwen2"  # a folder with a template


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


ASKED, SAID = Message("user", "hi"), Message("assistant", "hello")
HI = (ASKED, SAID)


def write(folder, *records):
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


@pytest.mark.parametrize(
    ("record", "messages"),
    [
        ({"messages": [user("hi"), assistant("hello")], "id": 3}, HI),
        ({"prompt": "hi", "response": "hello"}, HI),
        ({"prompt": "hi", "completion": "hello"}, HI),
        ({"question": "hi", "answer": "hello"}, HI),
        ({"prompt": "hi", "answer": "no", "response": "hello"}, HI),
        ({"prompt": [user("hi")], "completion": [assistant("hello")]}, HI),
        ({"prompt": [user("hi")], "completion": "hello"}, HI),
        ({"question": "1+1=", "answer": 2}, (Message("user", "1+1="), Message("assistant", "2"))),
        ({"system": "s", "prompt": "hi", "answer": "hello"}, (Message("system", "s"), *HI)),
        ({"messages": [user("hi"), assistant("hello"), user("bye")]}, HI),
        ({"messages": [user("hi"), assistant("hello"), *[user("hi"), assistant("hello")]]}, HI * 2),
        (
            {
                "conversations": [
                    {"from": "human", "value": "hi"},
                    {"from": "gpt", "value": "hello"},
                ]
            },
            HI,
        ),
        ({"text": " Once upon\na time", "source": "web"}, " Once upon\na time"),
        ({"text": "a", "messages": [user("hi"), assistant("hello")]}, HI),
    ],
)
def test_conversation_file_reads_every_form(tmp_path, record, messages):
    assert read_conversations(write(tmp_path, record)) == [messages]


@pytest.mark.parametrize(
    ("record", "pair"),
    [
        ({"prompt": "hi", "chosen": "a", "rejected": "b"}, ((ASKED,), "a", "b")),
        ({"question": "hi", "chosen": "a", "rejected": "b"}, ((ASKED,), "a", "b")),
        ({"prompt": [user("hi")], "chosen": "a", "rejected": "b"}, ((ASKED,), "a", "b")),
        (
            {"prompt": [user("hi")], "chosen": [assistant("a")], "rejected": [assistant("b")]},
            ((ASKED,), "a", "b"),
        ),
        (
            {"chosen": [user("hi"), assistant("a")], "rejected": [user("hi"), assistant("b")]},
            ((ASKED,), "a", "b"),
        ),
        (  # UltraFeedback: the prompt as a text, and once more in both conversations
            {"prompt": "hi"}
            | {"chosen": [user("hi"), assistant("a")], "rejected": [user("hi"), assistant("b")]},
            ((ASKED,), "a", "b"),
        ),
        (
            {"chosen": "The sky is blue.", "rejected": "The sky is blank."},
            ((Message("user", "The sky is"),), "blue.", "blank."),
        ),
        (  # Anthropic's HH
            {"chosen": "\n\nHuman: hi\n\nAssistant: hello\n\nHuman: hi\n\nAssistant: a"}
            | {"rejected": "\n\nHuman: hi\n\nAssistant: hello\n\nHuman: hi\n\nAssistant: ab"},
            ((*HI, ASKED), "a", "ab"),
        ),
        (
            {"system": "s", "prompt": "hi", "chosen": "a", "rejected": "b"},
            ((Message("system", "s"), ASKED), "a", "b"),
        ),
    ],
)
def test_preference_file_reads_every_form(tmp_path, record, pair):
    assert read_pairs(write(tmp_path, record)) == [PreferencePair(*pair)]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"instruction": "a", "output": "b"}, r"line 1 is no conversation: its columns are "
         r"instruction, output\. Write .*messages.*prompt.*response.*question.*completion"),
        ({"prompt": "a", "completion": "b", "label": False}, "record 1: its label is false: an "
         "answer to avoid, which sft would imitate. Remove such records"),
        ({"text": "a", "prompt": "b"}, "line 1 is no conversation: its columns are text, prompt"),
        ({"text": "a", "system": "b"}, "line 1 is no conversation: its columns are text, system"),
        ({"text": ["a"]}, r"'text' is \[\"a\"\]; it must be a non-empty text"),
        ({"text": "a", "tools": [1]}, "the column 'tools' is not read"),
        ({"prompt": "a"}, "line 1 is no conversation: its columns are prompt"),
        ({"messages": "hi"}, "record 1: 'messages' must be a list of"),
        ({"messages": []}, "record 1: 'messages' must be a list of"),
        ({"messages": [{"role": "bot", "content": "a"}]}, "a role is one of system, .*not 'bot'"),
        ({"messages": [user("a")]}, "the assistant says nothing"),
        ({"messages": [assistant("a")]}, "the assistant begins"),
        ({"messages": [user("a"), assistant("b"), assistant("c")]}, "twice in a row"),
        ({"messages": [user("a"), assistant("")]}, "'content of assistant' is \"\""),
        ({"messages": [user(3), assistant("a")]}, "'content of user' is 3"),
        ({"messages": [user("a"), assistant("\ud83d")]}, "holds half a character"),
        ({"messages": [user("a"), {**assistant(None), "tool_calls": [1]}]}, "tool_calls"),
        ({"prompt": "", "response": "b"}, "'prompt' is \"\"; it must be a non-empty text"),
    ],
)  # fmt: skip
def test_conversation_file_refuses_other_records_in_one_line(tmp_path, record, said):
    with pytest.raises(Mistake, match=said) as told:
        read_conversations(write(tmp_path, record))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"win": "a", "lose": "b"}, "line 1 has no 'chosen' and no 'rejected': its columns are "
         "win, lose. Write"),
        ({"prompt": "a", "completion": "b", "label": True}, "line 1 is a judgement of one answer "
         r"\(label\), and dpo, also with loss=kto, and reward learn from two answers to each p"),
        ({"prompt": "a", "response": "b", "label": 0}, "line 1 is a judgement of one answer"),
        ({"text": "a"}, "line 1 is a plain text, from which only sft learns: its columns are text. "
         "Write .*chosen.*rejected"),
        ({"prompt": "a", "response": "b"}, "line 1 is a conversation, from which only sft learns"),
        ({"messages": [user("a")]}, "line 1 is a conversation, from which only sft learns"),
        ({"chosen": "yes", "rejected": "no"}, "there is no prompt"),
        ({"chosen": [assistant("a")], "rejected": [assistant("b")]}, "have no prompt"),
        ({"chosen": [user("a"), assistant("b")], "rejected": [user("c"), assistant("d")]},
         "one conversation up to a last message"),
        ({"prompt": "a", "chosen": [assistant("b")], "rejected": [assistant("b")]}, "are the same"),
    ],
)  # fmt: skip
def test_preference_file_refuses_other_records_in_one_line(tmp_path, record, said):
    with pytest.raises(Mistake, match=said) as told:
        read_pairs(write(tmp_path, record))
    assert "\n" not in str(told.value)


def test_desirable_single_answers_are_imitated(tmp_path):
    path = write(tmp_path, {"prompt": "hi", "completion": "hello", "label": True})
    assert read_conversations(path) == [HI]


def test_conversation_loss_mask_is_the_assistant_turns_of_the_rendered_template(tmp_path):
    tokenizer = Tokenizer.read(QWEN2)
    talk = [("user", "what is 2"), ("assistant", "it is 2"), ("user", "no"), ("assistant", "4")]
    messages = [{"role": role, "content": content} for role, content in talk]
    path = write(tmp_path, {"messages": messages})
    (line,) = read_demonstrations(path, ChatSettings(tokenizer, 8, 200))
    expected, learned = [], []  # the tokens of the template's text, message by message
    for role, content in talk:
        for text, own in (
            (f"<|im_start|>{role}\n", False),
            (f"{content}<|im_end|>", role == "assistant"),
            ("\n", False),
        ):
            ids = tokenizer.encode(text)
            expected, learned = [*expected, *ids], [*learned, *[own] * len(ids)]
    assert line.ids == expected[:-1]  # the line break after the last end token is not read
    assert line.own == learned[:-1]


def test_preference_rows_are_prompt_and_answer_in_the_chat_template(tmp_path):
    tokenizer = Tokenizer.read(QWEN2)
    talk = [user("what is 2"), assistant("it is 2"), user("again")]
    record = {name: [*talk, assistant(text)] for name, text in (("chosen", "4"), ("rejected", "5"))}
    source = PairSource.create(read_pairs(write(tmp_path, record)), Comparisons(1), tokenizer)
    opening = tokenizer.encode(
        "<|im_start|>user\nwhat is 2<|im_end|>\n<|im_start|>assistant\nit is 2<|im_end|>\n"
        "<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    )
    for row, answer in zip(source.ids[0].tolist(), "45", strict=True):
        assert row == [*opening, *tokenizer.encode(f"{answer}<|im_end|>")]
    assert source.begin.tolist() == [[len(opening)] * 2]


def test_answer_follows_or_fills_the_thought_that_a_template_begins(tmp_path):
    Tokenizer.characters().write(tmp_path)
    template = "{%- for m in messages -%} {{ m.content }} {%- endfor -%}<|assistant|><think>\n"
    (tmp_path / "chat_template.jinja").write_text(template)
    tokenizer = Tokenizer.read(tmp_path)
    assert tokenizer.starts_in_thought
    for text in ("<think>1\n</think>2", "1\n</think>2"):
        assert tokenizer.decode(tokenizer.encode_answer(text)) == "1\n</think>2"
    assert tokenizer.decode(tokenizer.encode_answer("2")) == "\n</think>\n\n2"


def test_question_file_reads_question_as_prompt(tmp_path):
    tasks = JsonlTasks(write(tmp_path, {"question": "1+1=", "answer": "so #### 2"}))
    task = tasks.sample(0, 0)
    assert task.prompt == "1+1="
    assert tasks.verify(task, "#### 2").reward == 1.0


def test_conversation_file_in_place_of_questions_is_told_to_be_texts(tmp_path):
    path = write(tmp_path, {"messages": [user("hi"), assistant("hello")]})
    with pytest.raises(Mistake, match="no questions: give them as --texts FILE"):
        JsonlTasks(path)


@pytest.mark.parametrize("read", [read_conversations, read_comparisons])
def test_column_of_tools_is_refused_with_its_record(tmp_path, read):
    record = {"prompt": "a", "response": "b", "chosen": "b", "rejected": "c"}
    lines = [record, {**record, "tools": [{"name": "calc"}]}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(Mistake, match="record 2: the column 'tools' is not read"):
        read(tmp_path / "t.jsonl")
