"""A request's messages continue the answer that they follow, in whatever form they come back."""

import json

import pytest

from sterling.language.endpoint.chat_requests import read_message
from sterling.language.endpoint.message_history import MessageHistory

USER = {"role": "user", "content": "3 and 4?"}
RESULT = {"role": "tool", "tool_call_id": "abc", "content": "7"}
ANSWER = {"role": "assistant", "content": "7"}


def call(arguments, content=None):
    function = {"name": "add", "arguments": arguments}
    made = {"role": "assistant", "content": content}
    return made | {"tool_calls": [{"id": "abc", "type": "function", "function": function}]}


def read(*messages):
    return tuple(read_message(each, "here") for each in messages)


def history(*answered):
    """What is known after these conversations, each up to an answer."""
    made = MessageHistory()
    for turn, (*messages, answer) in enumerate(answered):
        made.add(read(*messages), *read(answer), turn)
    return made


@pytest.mark.parametrize(
    "returned",
    [
        call('{"a": 3, "b": 4}'),
        call('{"a":3,"b":4}'),
        call('{"b": 4, "a": 3}'),
        call({"a": 3, "b": 4}),
        call('{"a": 3, "b": 4}', ""),
        call('{"a": 3, "b": 4}', []),
        call('{"a": 3, "b": 4}') | {"reasoning_content": "hm", "refusal": None},
    ],
)
def test_call_that_comes_back_in_another_form_is_the_same(returned):
    known = history((USER, call('{"a": 3, "b": 4}')))
    assert known.find(read(USER, returned, RESULT)) == (0, read(RESULT))


def test_text_parts_are_their_text():
    parts = {"role": "assistant", "content": [{"type": "text", "text": "7"}]}
    assert history((USER, ANSWER)).find(read(USER, parts, USER)) == (0, read(USER))


@pytest.mark.parametrize(
    "changed",
    [
        (USER, call('{"a": 3, "b": 5}'), RESULT),
        (USER, call('{"a": 3, "b": 4}', "so"), RESULT),
        (USER, ANSWER, RESULT),
        ({"role": "user", "content": "3 and 4"}, call('{"a": 3, "b": 4}'), RESULT),
        ({"role": "system", "content": "Be brief."}, USER, call('{"a": 3, "b": 4}'), RESULT),
        (USER,),
        (USER, call('{"a": 3, "b": 4}')),  # nothing was added
    ],
)
def test_conversation_that_was_changed_continues_nothing(changed):
    known = history((USER, call('{"a": 3, "b": 4}')))
    messages = read(*changed)
    assert known.find(messages) == (None, messages)


def test_longest_known_conversation_is_continued():
    known = history((USER, ANSWER), (USER, ANSWER, USER, ANSWER))
    more = read(USER, ANSWER, USER, ANSWER, USER)
    assert known.find(more) == (1, more[4:])
    assert known.find(more[:3]) == (0, more[2:3])


def test_tools_are_part_of_the_conversation():
    known, tools = MessageHistory(), (json.dumps({"name": "add"}),)
    system, user, answer = read({"role": "system", "content": ""}, USER, ANSWER)
    with_tools = type(system)("system", "", tools)
    known.add((with_tools, user), answer, 0)
    assert known.find((with_tools, user, answer, user))[0] == 0
    assert known.find((system, user, answer, user))[0] is None
