"""Requests and answers of OpenAI's Responses API are those of chat completions in another form."""

import json

import pytest

from sterling.language.endpoint.chat_answers import Completion
from sterling.language.endpoint.chat_requests import parse_request
from sterling.language.endpoint.responses_api import (
    parse_responses_request,
    response_events,
    to_response,
)
from sterling.language.engine.ask import Said
from sterling.language.tokenizer import Tokenizer
from sterling.system.http_server import HttpError

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "name": "add", "parameters": PARAMETERS, "strict": True}
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 3}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "7"}
TOKENIZER = Tokenizer.bytes()


def completion(text, body, stopped=True):
    ids = TOKENIZER.encode(text) + [TOKENIZER.end] * stopped
    said = [Said(ids, [0.0] * len(ids), stopped)]
    return Completion(parse_responses_request(body), said, TOKENIZER, "mine", 5, [1, 2, 3])


def test_items_are_the_messages_of_a_chat():
    items = [
        {"role": "user", "content": "3?"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "Let me see."}]},
        CALL,
        CALL | {"call_id": "c2"},
        OUTPUT,
        {"role": "user", "content": [{"type": "input_text", "text": "so"}]},
    ]  # fmt: skip
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 3}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "3?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call, call]},
        {"role": "tool", "content": "7"},
        {"role": "user", "content": "so"},
    ]
    tool = {"type": "function", "function": {k: x for k, x in TOOL.items() if k != "type"}}
    found = parse_responses_request(
        {"input": items, "instructions": "Be brief.", "tools": [TOOL], "max_output_tokens": 9}
    )
    assert found == parse_request({"messages": messages, "tools": [tool], "max_tokens": 9})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "input_image"}]}, "input"),
        ({"input": [3]}, "input"),
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools"),
        ({"input": "a", "tools": 3}, "tools"),
        ({"input": [{"role": ["user"], "content": "a"}]}, "messages[0]"),
        ({"input": "a", "max_output_tokens": 0}, "max_completion_tokens"),
    ],
)
def test_request_that_cannot_be_served_is_told_the_field(body, param):
    with pytest.raises(HttpError) as told:
        parse_responses_request(body)
    assert (told.value.status, told.value.param) == (400, param)


def test_calls_of_an_answer_are_items():
    made = completion(
        'So.<tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call>',
        {"input": "3?", "tools": [TOOL]},
    )
    text, call = to_response(made)["output"]
    assert (text["role"], text["content"][0]["text"]) == ("assistant", "So.")
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        *("function_call", "add"),
        {"a": 3},
    )
    sent = [text | {"content": text["content"]}, call, OUTPUT | {"call_id": call["call_id"]}]
    again = parse_responses_request({"input": [{"role": "user", "content": "3?"}, *sent]})
    assert again.messages[1].content.startswith("So.\n<tool_call>")


def test_events_begin_and_end_each_item():
    made = completion("hello", {"input": "a"}, stopped=False)
    told = [json.loads(each) for each in response_events(made)]
    assert [each["type"].removeprefix("response.") for each in told] == [
        *("created", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "incomplete"),
    ]
    assert told[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert told[-2]["item"] == told[-1]["response"]["output"][0]
