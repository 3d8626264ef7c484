"""Verdicts and final answers: strict, in [0, 1], for any response whatever."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterling.language import tasks
from sterling.language.task import (
    REASONS,
    Family,
    Verdict,
    code_answer,
    final_answer,
    is_right,
)
from sterling.language.tasks import arithmetic_text
from sterling.language.tools import sql_database
from sterling.types import Mistake

NAMES = tasks.family_names()
FAMILIES = {name: tasks.find_family(name) for name in NAMES}
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)  # half characters as well
MARKS = ("<answer>", "</answer>", "\\boxed{", "}", "####", "<think>", "</think>", "```", "\0")
LONG = ("9" * 100_000, "(" * 100_000, "[" * 100_000, "<answer>" * 20_000, "\\boxed{" * 20_000)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_is_a_finite_number(reward):
    for number, named in ((reward, {}), (0.0, {"format": reward})):
        with pytest.raises(Mistake, match="must be finite"):
            Verdict(number, "right", rewards=named)


@pytest.mark.parametrize(
    ("found", "reward", "reason"),
    [
        (5.0, 5.0, "right"),
        (1.0, 1.0, "right"),
        (0.3, 0.3, "partly"),
        (0.0, 0.0, "wrong"),
        (-1.0, -1.0, "wrong"),
        ({"right": 1.0, "format": 0.2, "length": -0.1}, 1.1, "right"),
        ({"right": 0.0, "format": 2.0}, 2.0, "wrong"),
        ({"format": 2.0, "length": -0.5}, 1.5, "scored"),
    ],
)
def test_verdict_of_a_number_or_of_named_rewards_adds_them_up_and_says_what_is_right(
    found, reward, reason
):
    verdict = Verdict.of_rewards(found)
    assert (verdict.reward, verdict.reason) == (pytest.approx(reward), reason)
    assert verdict.rewards == (found if isinstance(found, dict) else {})
    assert is_right([verdict]) == (reason == "right")


def test_answer_of_several_turns_is_right_by_its_sum_of_right_and_never_by_other_rewards():
    parts = [Verdict.of_rewards({"right": 0.5, "format": 3.0}) for _ in range(2)]
    assert not is_right(parts[:1])
    assert is_right(parts)
    assert is_right([Verdict(0.5, "partly"), Verdict(0.5, "partly")])
    assert is_right([Verdict(0.0, "wrong"), Verdict(0.3, "right")])
    assert not is_right([])
    assert parts[0].times(0.5) == Verdict(1.75, "partly", rewards={"right": 0.25, "format": 1.5})


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("  42 \n", "42"),
        ("6*7 is 42\n#### 42", "42"),
        ("#### 1\n#### 42", "42"),
        ("so <answer> 42 </answer> it is", "42"),
        ("<answer>1</answer><answer>42</answer>", "42"),
        ("<answer>the sum is \\boxed{42}</answer>", "42"),
        (r"thus \boxed{1}, no: $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        ("<think>1? 2? #### 3</think>42", "42"),
        ("no tag opened</think> 42", "42"),
        ("<think>never ends 42", ""),
        ("<think>a</think> 1 <think>again", ""),
        (r"\boxed{42", ""),
        ("#### ", ""),
        ("", ""),
        ("<answer>42", "<answer>42"),
    ],
)
def test_final_answer_is_extracted_from_a_response(response, answer):
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("select 1", "select 1"),
        ("Here:\n```sql\nselect 1\n```\nDone.", "select 1"),
        ("```\nold\n```\n```python\n#### new\n```", "#### new"),
        ("<answer>```json\n{}\n```</answer>", "{}"),
        ("<think>```py\n1\n```</think>x = {1}", "x = {1}"),
        ("```python\nnever ends", ""),
        ("``` select 1 ```", "select 1"),
    ],
)
def test_code_is_taken_out_of_its_fences(response, code):
    assert code_answer(response) == code


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_task_verifier_accepts_any_response_text(name, data):
    judge_a_damaged_solution(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(settings.get_profile("random"))
@given(data=st.data())
def test_any_response_of_a_random_search_gets_a_verdict(name, data):
    judge_a_damaged_solution(name, data)


def judge_a_damaged_solution(name, data):
    family = FAMILIES[name]
    task = family.sample(data.draw(st.integers(0, 20)), data.draw(st.sampled_from(family.levels)))
    solution = family.solve(task)
    cut = data.draw(st.integers(0, len(solution)))
    parts = st.lists(st.sampled_from(MARKS) | ANY_TEXT, max_size=3).map("".join)
    damaged = parts.map(lambda text: solution[:cut] + text + solution[cut:])
    response = data.draw(damaged if name != "program" else parts)  # it is run, see below
    verdict = family.verify(task, response)
    assert 0.0 <= verdict.reward <= 1.0
    assert verdict.reason in REASONS
    assert (verdict.reward == 1.0) == (verdict.reason == "right")


@pytest.mark.parametrize("name", NAMES)
def test_task_verifier_judges_long_and_empty_responses_quickly(name):
    family = FAMILIES[name]
    task = family.sample(0, family.levels[-1])
    assert family.verify(task, " \n").reason == "no answer"
    before = time.perf_counter()
    for response in LONG:
        assert family.verify(task, response).reward < 1.0
    assert time.perf_counter() - before < 60.0


# Nested, repeated and backtracking texts, as long as an answer may be.
SLOW = [
    *("9" * 20_000, "(" * 20_000, "-" * 119 + "3", "1" * 9_999 + "e9", "[" * 990 + "]" * 990),
    *("a, " * 6_600 + "!", "[1," * 6_600, "a" + "- >," * 4_900 + "!", " " * 19_999 + "x"),
    *('{"a":' * 3_900, "(*" * 60, "1(" * 60, "{" * 20_000, "\\boxed{" * 2_800),
]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("sql", "program")])
def test_in_process_verifiers_end_quickly_on_adversarial_responses(name):
    """The table in docs/language_judging.md says why; none of them is killed at a limit."""
    family = FAMILIES[name]
    task = family.sample(0, family.levels[-1])
    for response in SLOW:
        before = time.process_time()
        assert family.verify(task, response).reward < 1.0
        assert time.process_time() - before < 30.0  # one that backtracks takes hours


@pytest.mark.parametrize("name", NAMES)
def test_task_verifier_accepts_a_solution_in_every_answer_format(name):
    family = FAMILIES[name]
    assert isinstance(family, Family)
    task = family.sample(3, family.levels[0])
    solution = family.solve(task)
    wrapped = [f"<think>hm 1 2</think>\n{solution}\n", f"I say <answer>{solution}</answer>"]
    if name in ("sql", "program", "json-format"):
        wrapped.append(f"Here:\n```\n{solution}\n```")
    elif name != "chain":  # whose own solution has ####
        wrapped += [f"Well.\n#### {solution}", f"It is \\boxed{{{solution}}}."]
    assert [family.verify(task, each).reason for each in wrapped] == ["right"] * len(wrapped)


@pytest.mark.parametrize(
    "text",
    [
        *("2**3", "7//2", "5%3", "__import__('os')", "f(3)", "3 if 1 else 2", "[3][0]", "3,5"),
        *("3+", "", "()", "(3", "0x3", "3.0", "1e3", "03", "~3", "+3", "3=3", "a", "٣", "3" * 121),
        *("(" * 60 + "3" + ")" * 59, "(" * 110, "True"),
    ],
)
def test_invalid_arithmetic_expressions_evaluate_to_none(text):
    assert arithmetic_text.evaluate_text(text) is None


def test_arithmetic_expressions_are_evaluated_exactly():
    assert arithmetic_text.evaluate_text("1/3*3 - -(2*4)") == (9, [1, 3, 3, 2, 4])
    assert arithmetic_text.evaluate_text("1/(2-2)") == (None, [1, 2, 2])
    assert arithmetic_text.evaluate_text("-" * 119 + "3") == (-3, [3])


PEOPLE = [{"name": "people", "columns": ["name", "age"], "rows": [["ada", 30], ["bo", 40]]}]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("delete from people", "forbidden"),
        ("update people set age=1", "forbidden"),
        ("insert into people values ('cy', 1)", "forbidden"),
        ("drop table people", "forbidden"),
        ("create table more (x)", "forbidden"),
        ("attach database 'FILE' as other", "forbidden"),
        ("vacuum into 'FILE'", "forbidden"),
        ("pragma query_only=off", "forbidden"),
        ("select load_extension('x')", "forbidden"),
        ("select random()", "forbidden"),
        ("begin", "forbidden"),
        ("select 1; delete from people", "error"),
        ("select writefile('FILE', 'x')", "error"),
        ("select zeroblob(1000000000)", "forbidden"),
        ("select 1" + " " * 10_000, "error"),
        ("select '\ud800'", "error"),
        ("select 1\0", "error"),
        ("no sql", "error"),
        ("", ""),
    ],
)
def test_sql_query_can_only_read(query, reason, tmp_path):
    found = sql_database.run_query(PEOPLE, query.replace("FILE", str(tmp_path / "made")))
    assert found.reason == reason
    assert not found.rows
    assert not list(tmp_path.iterdir())


ENDLESS = "with recursive t(x) as (select 1 union all select x+1 from t) select"


@pytest.mark.parametrize(
    "query",
    [
        f"{ENDLESS} count(*) from t",
        f"{ENDLESS} x from t order by x",
        f"{ENDLESS} upper(x) from t order by 1",
    ],
)
def test_sql_query_times_out(query):
    before = time.perf_counter()
    assert sql_database.run_query(PEOPLE, query) == (None, "timeout")
    assert time.perf_counter() - before < 60.0


def test_sql_query_fetches_a_limited_number_of_rows():
    assert len(sql_database.run_query(PEOPLE, f"{ENDLESS} x from t", 7).rows) == 7


def test_sql_rows_are_compared_as_a_multiset_or_in_order():
    one, other = [(1, "a"), (2.0000001, "b")], [(2, "b"), (1, "a")]
    assert sql_database.same_rows(one, other, ordered=False)
    assert not sql_database.same_rows(one, other, ordered=True)
    assert not sql_database.same_rows([(1,), (1,), (2,)], [(1,), (2,), (2,)], ordered=False)


def test_json_format_task_rejects_values_of_other_types():
    family, task = FAMILIES["json-format"], FAMILIES["json-format"].sample(0, 0)
    ((key, value),) = task.answer.items()
    for wrong in (f'"{value}"', f"{value}.0", f"[{value}]", "true"):
        assert family.verify(task, f'{{"{key}":{wrong}}}').reason == "wrong"
    twice = f'{{"{key}":1,"{key}":{value}}}'
    for malformed in (
        twice,
        f"{{{key}:{value}}}",
        f'{{"{key}":NaN}}',
        json.dumps(task.answer)[:-1],
    ):
        assert family.verify(task, malformed).reason == "malformed"
