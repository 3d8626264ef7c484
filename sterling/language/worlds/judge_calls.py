"""Call a user's judge: with one question and answer, or in TRL's form with lists of them.

See :mod:`sterling.language.worlds.judged_questions`. Runs in the judge's process, if it has one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from sterling.language.adapters.user_tasks import awaited
from sterling.language.batch_verdicts import length_fault
from sterling.language.named_rewards import read_rewards
from sterling.lookup import user_imports
from sterling.system.away_errors import is_away

Rewards = float | dict[str, float] | str  # of one answer; a text: the reason why there is none


def takes_lists(function: Callable[..., Any]) -> bool:
    """Whether a judge has TRL's form."""
    return "completions" in inspect.signature(function).parameters


def make_answerer(judge: str) -> Callable[[list[dict[str, Any]]], list[Rewards] | str]:
    """Return the function that judges answers; called in the judge's process."""
    return functools.partial(judge_answers, user_imports.load(judge))


def judge_answers(
    function: Callable[..., Any], questions: list[dict[str, Any]]
) -> list[Rewards] | str:
    """Return a judge's reward or named rewards for each answer, or the reason why it has none; a
    text if the judge raised. An exception of a service that is away passes through."""
    faults = [_missing_columns(function, each["columns"]) for each in questions]
    asked = [each for each, fault in zip(questions, faults, strict=True) if not fault]
    try:
        judge = _judge_lists if takes_lists(function) else _judge_each
        found = iter(judge(function, asked) if asked else [])
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        if is_away(error):
            raise
        return user_imports.describe_error(error)
    return [fault or next(found) for fault in faults]


def _judge_each(function: Callable[..., Any], asked: list[dict[str, Any]]) -> list[Rewards]:
    return [
        _read_reward(_result(function, [each["prompt"], each["completion"]], each["columns"]))
        for each in asked
    ]


def _judge_lists(function: Callable[..., Any], asked: list[dict[str, Any]]) -> list[Rewards]:
    """Call a function of TRL's form; a column that a question lacks is None there."""
    lists = {f"{name}s": [each[name] for each in asked] for name in ("prompt", "completion")}
    for column in dict.fromkeys(name for each in asked for name in each["columns"]):
        lists[column] = [each["columns"].get(column) for each in asked]
    found = _result(function, [], lists)
    if fault := length_fault(found, len(asked), "completions"):
        return [f"verifier nonsense: it returned {fault}"] * len(asked)
    return [_read_reward(each) for each in found]


def _missing_columns(function: Callable[..., Any], columns: dict[str, Any]) -> str:
    """Return why a judge cannot judge a question: it takes arguments that no column is named like;
    "" if it can."""
    parameters = inspect.signature(function).parameters
    first = 0 if takes_lists(function) else 2  # a question and an answer come before
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = [each for each in [*parameters.values()][first:] if each.kind not in several]
    known = {"prompts", "completions", *columns}
    missing = [x.name for x in taken if x.default is x.empty and x.name not in known]
    if not missing:
        return ""
    has = ", ".join(columns) or "none"
    return f"verifier raised: it takes {', '.join(missing)}; columns of the question: {has}"


def _result(function: Callable[..., Any], first: list[Any], named: dict[str, Any]) -> Any:
    """Call a function with its first arguments, and those by name that it takes; wait for it if it
    is asynchronous."""
    parameters = inspect.signature(function).parameters
    names = [*parameters][len(first) :]
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        names += [name for name in named if name not in parameters]
    found = function(*first, **{name: named[name] for name in names if name in named})
    return awaited(found)


def _read_reward(value: Any) -> Rewards:
    """Return the reward, or named ones, that a judge returned, or the reason why it is none."""
    try:
        return read_rewards(value)
    except ValueError as error:
        return f"verifier nonsense: it returned {error}"
