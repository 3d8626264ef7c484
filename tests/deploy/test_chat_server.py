"""A served language model answers as the run's policy does, in OpenAI's form, and tells what is
wrong with a request."""

import asyncio
import contextlib
import json
import math

import pytest

import sterling
from sterling.deploy.serving.trained_chat_server import chat_server
from sterling.language.endpoint.chat_requests import parse_request
from sterling.language.tokenizer import Tokenizer
from sterling.types import Mistake

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
ASKED = {"messages": [{"role": "user", "content": "abc"}]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model that has learned next to nothing, so that its answers differ."""
    options = {"updates": 1, "model": "nano", "seeds": 2, "limit": 12, "prompts": 2, "group": 2}
    made = sterling.train("reinforce", "reverse-text", **options, quiet=True)
    return made


async def ask(port, path, body=None):
    """The status, the type and the body of one request, in a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + data)
    answer = await reader.read()
    writer.close()
    head, _, found = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), b"text/event-stream" in head, found.decode()


def served(run, *requests, context=64):
    """The answers to requests that are sent at once: (status, JSON), or a stream's text."""

    async def both():
        server, ready = chat_server(run, None, "mine", context, 4), asyncio.Queue()
        task = asyncio.create_task(server.serve("127.0.0.1", 0, ready.put_nowait))
        try:
            port = await ready.get()
            found = await asyncio.gather(*(ask(port, *each) for each in requests))
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return [text if events else (status, json.loads(text)) for status, events, text in found]

    return asyncio.run(both())


def texts(answer):
    return [choice["message"]["content"] for choice in answer[1]["choices"]]


def test_served_model_answers_as_the_policy(run):
    cold = ASKED | {"temperature": 0, "max_tokens": 12}
    (answer,) = served(run, (CHAT, cold))
    policy = run.policy("abc")
    assert texts(answer) == [policy]
    status, body = answer
    assert (status, body["object"], body["model"]) == (200, "chat.completion", "mine")
    count = body["usage"]["completion_tokens"]
    prompt = len(Tokenizer.characters().encode_opening(parse_request(cold).messages))
    assert body["usage"] == {
        **{"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
    }
    assert body["choices"][0]["finish_reason"] == ("length" if count == 12 else "stop")


def test_seeded_answers_are_the_same_alone_and_beside_others(run):
    asked = [ASKED | {"seed": seed, "max_tokens": 9} for seed in range(9)]
    together = [texts(each) for each in served(run, *((CHAT, each) for each in asked))]
    alone = [texts(served(run, (CHAT, asked[seed]))[0]) for seed in (0, 8)]
    assert [together[0], together[8]] == alone
    assert len({each for (each,) in together}) > 5


def test_several_answers_with_log_probs(run):
    body = ASKED | {"n": 3, "seed": 1, "max_completion_tokens": 5, "logprobs": True}
    ((status, found),) = served(run, (CHAT, body))
    assert status == 200
    assert [each["index"] for each in found["choices"]] == [0, 1, 2]
    assert len({each["message"]["content"] for each in found["choices"]}) > 1
    lists = [each["logprobs"]["content"] for each in found["choices"]]
    assert sum(map(len, lists)) == found["usage"]["completion_tokens"]
    for choice, content in zip(found["choices"], lists, strict=True):
        assert "".join(each["token"] for each in content) == choice["message"]["content"]
        assert all(each["logprob"] < 0.0 for each in content)


def test_likeliest_tokens_are_given_beside_those_that_were_drawn(run):
    body = ASKED | {"seed": 1, "max_tokens": 5, "logprobs": True, "top_logprobs": 20}
    cold = body | {"temperature": 0, "top_logprobs": 3}
    (_, warm), (_, greedy) = served(run, (CHAT, body), (CHAT, cold))
    content = warm["choices"][0]["logprobs"]["content"]
    assert content
    for drawn in content:
        top = drawn["top_logprobs"]
        values = [each["logprob"] for each in top]
        assert (len(top), sorted(values, reverse=True)) == (20, values)
        assert 0.0 < sum(map(math.exp, values)) <= 1.0 + 1e-6
        same = [each["logprob"] for each in top if each["token"] == drawn["token"]]
        assert same == pytest.approx([drawn["logprob"]] * len(same), abs=1e-5)
        assert same or drawn["logprob"] <= values[-1]
    for drawn in greedy["choices"][0]["logprobs"]["content"]:  # no other one could be drawn
        assert [each["token"] for each in drawn["top_logprobs"]] == [drawn["token"]]


def test_stream_tells_what_the_whole_answer_tells(run):
    body = ASKED | {"seed": 3, "max_tokens": 8}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    whole, stream = served(run, (CHAT, body), (CHAT, body | options))
    lines = [each.removeprefix("data: ") for each in stream.strip().split("\n\n")]
    assert lines[-1] == "[DONE]"
    begin, end, usage = map(json.loads, lines[:-1])
    choice = whole[1]["choices"][0]
    assert begin["choices"][0]["delta"] == choice["message"]
    assert end["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert usage["usage"] == whole[1]["usage"]
    assert {each["object"] for each in (begin, end, usage)} == {"chat.completion.chunk"}


def test_responses_api_gives_what_chat_completions_give(run):
    asked = {"input": "abc", "max_output_tokens": 6, "seed": 3, "temperature": 1.0}
    chat = ASKED | {"max_tokens": 6, "seed": 3}
    (_, chosen), (_, found), events = served(
        run, (CHAT, chat), (RESPONSES, asked), (RESPONSES, asked | {"stream": True})
    )
    text = chosen["choices"][0]["message"]["content"]
    assert [part["text"] for each in found["output"] for part in each["content"]] == [text]
    assert found["usage"]["output_tokens"] == chosen["usage"]["completion_tokens"]
    assert found["status"] == {"length": "incomplete"}.get(
        chosen["choices"][0]["finish_reason"], "completed"
    )
    told = [json.loads(line.removeprefix("data: ")) for line in events.split("\n\n") if line]
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    whole = told[-1]["response"]
    assert {**whole, "created_at": 0} == {**found, "created_at": 0}
    assert "".join(each["delta"] for each in told if each["type"].endswith("delta")) == text


def test_models_and_health_are_told(run):
    models, health = served(run, ("/v1/models",), ("/health",))
    assert [each["id"] for each in models[1]["data"]] == ["mine"]
    assert health == (200, {"status": "ok", "answers": 0})


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "messages", "messages must be a list"),
        ({"messages": [{"role": "robot"}]}, "messages[0]", "role is one of developer, system"),
        (ASKED | {"n": 0}, "n", "n must be a whole number and at least 1 and at most 128; got 0"),
        (ASKED | {"max_tokens": 2.5}, "max_tokens", "must be a whole number and at least 1"),
        (ASKED | {"temperature": -1}, "temperature", "at least 0 and at most 2"),
        (ASKED | {"stop": [1]}, "stop", "a text or a list of texts"),
        (ASKED | {"stop": 5}, "stop", "a text or a list of texts"),
        ({"messages": [{"role": [], "content": "a"}]}, "messages[0]", "role is one of developer"),
        (
            {"messages": [{"role": "assistant", "tool_calls": 5}]},
            *("messages[0]", "tool_calls must be a list"),
        ),
        (ASKED | {"functions": [{}]}, "functions", "functions is not served; leave it out"),
        (ASKED | {"top_logprobs": 2}, "top_logprobs", "top_logprobs needs logprobs: set"),
        (ASKED | {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "and at most 20; got 21"),
        (ASKED | {"tools": [{"type": "function"}]}, "tools", "with a name and parameters"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            *("messages[0]", "a part of type image_url; only texts are read"),
        ),
    ],
)
def test_request_that_cannot_be_served_is_told_the_field(run, body, param, said):
    ((status, found),) = served(run, (CHAT, body))
    error = found["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert said in error["message"]


def test_messages_longer_than_the_context_have_their_own_code(run):
    long = {"messages": [{"role": "user", "content": "a" * 70}]}
    ((status, found),) = served(run, (CHAT, long))
    assert (status, found["error"]["code"]) == (400, "context_length_exceeded")
    assert "larger --context" in found["error"]["message"]
    near = {"messages": [{"role": "user", "content": "a" * 50}]}
    ((status, found),) = served(run, (CHAT, near | {"max_tokens": 60}))
    assert status == 200
    assert found["usage"]["total_tokens"] <= 64  # the answer is cut where the context ends


def test_other_forms_and_malformed_bodies_are_told(run):
    answers = served(run, ("/v1/messages", {}), (CHAT, b"{"), ("/v1/nothing", {}))
    assert [status for status, _ in answers] == [404, 400, 404]
    assert "Messages API is not served; use POST /v1/chat" in answers[0][1]["error"]["message"]
    assert "the body is not JSON" in answers[1][1]["error"]["message"]


def test_reward_models_and_wrong_sizes_are_refused(run):
    for context, slots in ((1, 4), (64, 0)):
        with pytest.raises(Mistake, match="must be at least"):
            chat_server(run, None, "mine", context, slots)
