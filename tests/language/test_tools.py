"""Tools answer calls in both spellings, and never raise whatever a model writes."""

import json
from typing import Literal

import pytest

from sterling.language.sandbox import isolation
from sterling.language.tools import tool_calls
from sterling.language.tools.calculator import calculate
from sterling.language.tools.corpus_search import Corpus
from sterling.types import Mistake


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12*7", "84"),
        ("2**64", "18446744073709551616"),
        ("-(3+4)*2", "-14"),
        ("7/2", "3.5"),
        ("7//2 + 7%2", "4"),
        ("max(1, sqrt(16)) * pi", "12.5663706144"),
        (" 1e3 ", "1000"),
        ("gcd(12, 18)", "6"),
    ],
)
def test_the_calculator_computes(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        *("", "1+", "a", "True", "'a'*9", "[1]", "1 if 1 else 2", "(lambda: 1)()", "10**10**10"),
        *("__import__('os')", "().__class__", "9**9**9", "1/0", "1<2", "2**-100000", "(-1)**0.5"),
        *("(" * 150 + ")" * 150, "1" * 300, "1e400", "sqrt(-1)", "max()", "round(1, b=2)", "\0"),
        *("round(5, -999999999)", "round(5, 401)"),
        "*".join(["10**1000"] * 2),
    ],
)
def test_calculator_refuses_other_input_in_one_line(expression):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        calculate(expression)


def test_corpus_search_ranks_by_weighted_shared_words():
    corpus = Corpus(["the cat sat", "", "the dog sat on the mat", "A zebra and the Cat", "the the"])
    assert corpus.search("cat", 5) == ["the cat sat", "A zebra and the Cat"]  # the shorter first
    assert corpus.search("the zebra", 1) == ["A zebra and the Cat"]  # a rare word weighs more
    assert corpus.search("unicorn") == []
    with pytest.raises(Mistake, match="corpus to search in is empty"):
        Corpus([" "])


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C", at: list[int] | None = None):
    """Tell the weather of a city
    for some days.

    More words that no model needs.
    """
    return f"{city}: {days} {unit}, {at}"


def test_a_typed_function_becomes_a_tool():
    made = tool_calls.tool_from_function(weather)
    assert made.description == "Tell the weather of a city for some days."
    assert made.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "at": {"type": ["array", "null"], "items": {"type": "integer"}},
        },
        "required": ["city"],
    }
    assert made.schema["function"]["name"] == "weather"
    json.dumps(made.schema)


def test_tool_function_without_docstring_or_types_is_refused():
    def silent(x: int):
        return x

    def untyped(x):
        """Do it."""

    def odd(x: object):
        """Do it."""

    for function, words in (
        (silent, "docstring"),
        (untyped, "no type"),
        (odd, "no call can contain"),
    ):
        with pytest.raises(Mistake, match=words):
            tool_calls.tool_from_function(function)
    with pytest.raises(Mistake, match="did you mean python"):
        tool_calls.find_tool("pyton")
    with pytest.raises(Mistake, match="second tool is called 'calc'"):
        tool_calls.tools_by_name(["calc", "calc"])
    with pytest.raises(Mistake, match="cannot read the corpus"):
        tool_calls.find_tool("search:/no/such/file")


def say(text: str) -> list[tuple[bool, str]]:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    def broken() -> str:
        """Never work."""
        raise ValueError("out of order")

    known = tool_calls.tools_by_name(["calc", weather, double, broken])
    return [tool_calls.run_call(call, known) for call in tool_calls.find_calls(text, known)]


def call(name: str, **arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_tool_calls_in_both_formats_are_answered_in_order():
    text = f"let me see <calc>6*7</calc> and\n{call('calc', expression='1+1')}<double>21</double>"
    assert say(text) == [(True, "42"), (True, "2"), (True, "42")]
    assert say(call("weather", city="Rome", days=2, unit="F")) == [(True, "Rome: 2 F, None")]
    twice = json.dumps({"name": "double", "arguments": json.dumps({"number": 4})})
    assert say(f"<tool_call>\n{twice}\n</tool_call>") == [(True, "8")]
    assert say("the answer is <b>42</b>, and 3 < 4 > 2") == []


def test_tool_schema_may_omit_properties_and_required():
    """JSON Schema's ``required`` and ``properties`` may be left out; tools are made by hand too."""
    now = tool_calls.Tool("now", "Tell the time.", {"type": "object"}, lambda: "noon")
    kind = {"type": "object", "properties": {"city": {"type": "string"}}}
    sky = tool_calls.Tool("sky", "Tell the weather.", kind, lambda city="Rome": f"{city}: blue")
    known = tool_calls.tools_by_name([now, sky])
    text = f"<now></now>{call('now')}{call('sky')}<sky>Oslo</sky>{call('now', city='Rome')}"
    said = [tool_calls.run_call(each, known) for each in tool_calls.find_calls(text, known)]
    right = ["noon", "noon", "Rome: blue", "Oslo: blue"]
    wrong = (False, "error: there is no argument 'city'")
    assert said == [*((True, each) for each in right), wrong]


def pick(number: Literal[1, 2, 3, "all"], unit: Literal["C", "F"] | None = None) -> str:
    """Pick one."""
    return f"{number!r} {unit}"


def test_nullable_tool_arguments_accept_null():
    assert say(call("weather", city="Rome", at=None)) == [(True, "Rome: 1 C, None")]
    assert say(call("weather", city="Rome", at=[1])) == [(True, "Rome: 1 C, [1]")]
    known = tool_calls.tools_by_name([pick])
    for unit in (None, "F"):
        (asked,) = tool_calls.find_calls(call("pick", number="all", unit=unit), known)
        assert tool_calls.run_call(asked, known) == (True, f"'all' {unit}")
    assert known["pick"].parameters["properties"] == {
        "number": {"type": ["integer", "string"], "enum": [1, 2, 3, "all"]},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
    }


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("2", (True, "2 None")),
        ("all", (True, "'all' None")),
        ('"all"', (True, "'all' None")),
        ("4", (False, "error: number must be one of 1, 2, 3, all")),
    ],
)
def test_enum_tool_argument_accepts_the_short_call_format(text, reply):
    known = tool_calls.tools_by_name([pick])
    (asked,) = tool_calls.find_calls(f"<pick>{text}</pick>", known)
    assert tool_calls.run_call(asked, known) == reply


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<calc>6*7", "<calc> is never closed"),
        ("<calc>6*</calc>", "this is no expression"),
        ("<tool_call>{</tool_call>", "a call is JSON with name and arguments"),
        ("<tool_call>[1]</tool_call>", "a call is JSON with name and arguments"),
        ('<tool_call>{"name": 3}</tool_call>', "the name is text and the arguments are an object"),
        (call("fly"), "no tool is called 'fly'; there are calc, weather, double, broken"),
        (call("calc"), "expression is missing"),
        (call("calc", expression=3), "expression must be string"),
        (call("calc", expression="1", base=2), "there is no argument 'base'"),
        (call("weather", city="Rome", unit="K"), "unit must be one of C, F"),
        (call("double", number=True), "number must be integer"),
        (call("weather", city="Rome", days=None), "days must be integer"),
        (call("weather", city="Rome", at="now"), "at must be array or null"),
        ("<double>two</double>", "number must be JSON"),
        ("<double>2.5</double>", "number must be integer"),
        ("<broken></broken>", "out of order"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "a call is JSON with name and arguments"),
    ],
)
def test_faulty_tool_call_is_answered_with_its_error(text, reply):
    assert say(text) == [(False, f"error: {reply}")]


def test_python_runs_in_the_sandbox():
    known = tool_calls.tools_by_name(["python"])
    (asked,) = tool_calls.find_calls("<python>x = 6\nprint('hi')\nx * 7</python>", known)
    good, told = tool_calls.run_call(asked, known)
    if isolation() == "namespaces":
        assert (good, told) == (True, "hi\n42")
        (asked,) = tool_calls.find_calls("<python>1/0</python>", known)
        assert (
            tool_calls.run_call(asked, known)[1]
            == "error: error: ZeroDivisionError: division by zero"
        )
    else:
        assert (good, told[:14]) == (False, "error: refused")


def test_search_tool_reads_a_text_file(tmp_path):
    (tmp_path / "facts.txt").write_text("Paris is the capital of France\nRome is in Italy\n")
    known = tool_calls.tools_by_name([f"search:{tmp_path / 'facts.txt'}"])
    (asked,) = tool_calls.find_calls("<search>capital of france</search>", known)
    assert tool_calls.run_call(asked, known) == (True, "Paris is the capital of France")
