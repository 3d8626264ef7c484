"""Answers of a language model become chat completions: texts, calls, thoughts, tokens."""

import json

from sterling.language.endpoint.chat_answers import Completion
from sterling.language.endpoint.chat_requests import parse_request
from sterling.language.engine.ask import Said
from sterling.language.tokenizer import Tokenizer

ASKED = {"messages": [{"role": "user", "content": "abc"}]}
TOOL = {"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}


def completed(text, stopped=True, **more):
    """The choice that an answer of this text becomes."""
    tokenizer, request = Tokenizer.bytes(), parse_request(ASKED | more)
    ids = tokenizer.encode(text) + [tokenizer.end] * stopped
    said = Said(ids, [-1.0] * len(ids), stopped)
    completion = Completion(request, [said], tokenizer, "mine", 0, [1, 2, 3])
    return completion.to_json()["choices"][0], completion


def test_tokens_are_given_if_they_are_asked_for():
    choice, completion = completed("ab", return_token_ids=True)
    assert choice["token_ids"] == completion.said[0].ids
    assert completion.to_json()["prompt_token_ids"] == [1, 2, 3]
    begin, end, _ = completion.events()
    assert json.loads(begin)["prompt_token_ids"] == [1, 2, 3]
    assert json.loads(begin)["choices"][0]["token_ids"] == choice["token_ids"]
    assert "token_ids" not in end
    choice, completion = completed("ab")
    assert not {"token_ids", "prompt_token_ids"} & {*choice, *completion.to_json()}


def test_calls_in_an_answer_become_tool_calls():
    text = 'Let me see.<tool_call>{"name": "price", "arguments": {"item": "tea"}}</tool_call>'
    choice, completion = completed(text, tools=[TOOL])
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    assert (call["function"]["name"], call["type"]) == ("price", "function")
    assert json.loads(call["function"]["arguments"]) == {"item": "tea"}
    assert len(call["id"]) == 9
    assert call["id"] == completed(text, tools=[TOOL])[0]["message"]["tool_calls"][0]["id"]
    later = {"messages": [*ASKED["messages"], choice["message"], *ASKED["messages"]]}
    again = completed(text, tools=[TOOL], **later)[0]["message"]["tool_calls"][0]
    assert again["id"] != call["id"]
    delta = json.loads(completion.events()[0])["choices"][0]["delta"]
    assert delta["tool_calls"] == [{"index": 0, **call}]


def test_text_that_only_looks_like_a_call_is_content():
    for text, more in [
        ("<tool_call>{nonsense}</tool_call>", {"tools": [TOOL]}),
        ('<tool_call>{"name": "price", "arguments": "tea"}</tool_call>', {"tools": [TOOL]}),
        ('<tool_call>{"name": "price", "arguments": {}}</tool_call>', {}),
        ('<tool_call>{"name": "price"}</tool_call>', {"tools": [TOOL], "tool_choice": "none"}),
    ]:
        choice, _ = completed(text, **more)
        assert choice["message"] == {"role": "assistant", "content": text}
        assert choice["finish_reason"] == "stop"


def test_answer_ends_before_the_first_text_that_stops_it():
    assert completed("one. two; three", stop=["; ", ". "])[0]["message"]["content"] == "one"
    cut, _ = completed("one two", stopped=False, stop="; ")
    assert (cut["message"]["content"], cut["finish_reason"]) == ("one two", "length")


def test_history_with_calls_and_results_is_read_as_the_model_writes_it():
    call = {"id": "a", "type": "function", "function": {"name": "price", "arguments": '{"a": 3}'}}
    parts = [{"type": "text", "text": "be"}, {"type": "text", "text": " short"}]
    history = [
        {"role": "developer", "content": parts},
        {"role": "user", "content": "tea?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
    ]
    messages = parse_request({"messages": history, "tools": [TOOL]}).messages
    assert [each.role for each in messages] == ["system", "user", "assistant", "tool"]
    assert messages[0].content == "be short"
    assert json.loads(messages[0].tools[0]) == TOOL
    assert messages[2].content == '<tool_call>{"name": "price", "arguments": {"a": 3}}</tool_call>'
    spaced = dict(call, function={"name": "price", "arguments": '{"a":3}'})  # as pydantic-ai's
    history[2]["tool_calls"] = [spaced]
    assert parse_request({"messages": history, "tools": [TOOL]}).messages == messages


def test_thought_is_told_apart_from_the_answer_and_its_calls_are_none():
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    thinks = message_of(f"<think>so {call}</think>\n7")
    assert thinks == {"role": "assistant", "content": "7", "reasoning_content": f"so {call}"}
    assert message_of("<think>never ends") == {
        **{"role": "assistant", "content": ""},
        "reasoning_content": "never ends",
    }


def message_of(text):
    """The message of an answer to a request with a tool."""
    tokenizer = Tokenizer.bytes()
    tools = [{"type": "function", "function": {"name": "look"}}]
    ids = tokenizer.encode_answer(text)
    said = [Said(ids, [0.0] * len(ids), True)]
    made = Completion(
        parse_request(ASKED | {"tools": tools}), said, tokenizer, "mine", 0, [1, 2, 3]
    )
    return made.to_json()["choices"][0]["message"]
