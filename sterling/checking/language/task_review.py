"""The review of language tasks: files of questions, families, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sterling.checking.language.reviewed_tasks import (
    Posed,
    ReviewedTasks,
    answer_forms,
    has_solutions,
    users_object,
)
from sterling.checking.review_findings import (
    FAILS,
    NOT_CHECKED,
    Check,
    CheckFailed,
    Finding,
    NotChecked,
    leave_out,
    not_checked,
    run_checks,
    section_checks,
)
from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.task import Family, batch_judge
from sterling.language.tasks import find_family
from sterling.lookup import user_imports
from sterling.types import Mistake

JSONL_FILE = re.compile(r"(.+\.jsonl)(?::(\w*))?")
NO_TASK = "there is no task"
NONSENSE = "I do not know."
ODD_RESPONSES = (" ", "a" * 10_000, "\\boxed{", "<think>", "1e999", "\x00", "null", "héllo 🙂")
LISTED = 5  # right answers that are listed in one response
SOME = 5  # tasks that get the odd responses


def check_tasks(tasks: str | Family, *, quick: bool = False) -> Iterator[Finding]:
    """Yield the findings of a review of language tasks, given by a name
    (:func:`sterling.language.tasks.find_family`) or a family.

    Faults in the lines of a file and in the user's code are findings. Raises Mistake for a name or
    a file that does not exist.
    """
    file = JSONL_FILE.fullmatch(tasks) if isinstance(tasks, str) else None
    if file is not None:
        yield from _file_findings(Path(file[1]), file[2] or "", quick)
        return
    try:
        family = find_family(tasks) if isinstance(tasks, str) else tasks
    except Mistake as error:
        if not Path(user_imports.split_reference(str(tasks))[0]).is_file():
            raise
        yield Finding("its functions can be called", FAILS, str(error))
        return
    try:
        yield from run_checks(section_checks("its tasks", partial(_task_checks, family, quick)))
    finally:
        getattr(family, "close", lambda: None)()


def _file_findings(path: Path, comparison: str, quick: bool) -> Iterator[Finding]:
    """Yield the findings of a file of questions: its lines', then those of its good ones."""
    faults: list[str] = []
    family = JsonlTasks(path, comparison, faults)
    yield from run_checks(iter([("every line is a task", partial(_check_lines, faults), None)]))
    if family.records:
        yield from run_checks(section_checks("its tasks", partial(_task_checks, family, quick)))
    else:
        yield Finding("its tasks and their verdicts", NOT_CHECKED, NO_TASK)


def _check_lines(faults: list[str]) -> str:
    if faults:
        said, _, remedy = faults[0].partition("; ")
        more = f" (the first of {len(faults)} faults)" if len(faults) > 1 else ""
        raise CheckFailed(said + more, remedy or "correct the line, or remove it")
    return ""


def _task_checks(family: Family, quick: bool) -> Iterator[Check]:
    tasks, own = ReviewedTasks(family, quick), users_object(family)
    sample, verify = own.sample, getattr(own, "verify", None) or own.verify_batch
    yield "tasks can be made", partial(_check_made, tasks), sample
    of_sample: dict[str, Callable[[ReviewedTasks], str]] = {
        "the same seed gives the same task": _check_repeatable,
        "every task has an answer": _check_answers,
    }
    of_verify: dict[str, Callable[[ReviewedTasks], str]] = {
        "right answers get reward 1": _check_right_answers,
        "wrong answers do not get reward 1": _check_wrong_answers,
        "a question has one answer": _check_contradictions,
        "the same response gets the same verdict": _check_same_verdict,
        "every response gets a verdict": _check_verdicts,
    }
    if tasks.batch:
        of_verify["several responses at once get a verdict each"] = _check_batch
    for checks, code in ((of_sample, sample), (of_verify, verify)):
        for what, check in checks.items():
            yield what, partial(check if tasks.posed else _no_task, tasks), code
    if tasks.left_out:
        why = f"{tasks.left_out} are left out" + " by --quick" * quick
        yield "all other tasks", partial(leave_out if quick else not_checked, why), sample


def _no_task(tasks: ReviewedTasks) -> str:
    raise NotChecked(NO_TASK)


def _check_made(tasks: ReviewedTasks) -> str:
    count = len(tasks.posed)
    if tasks.failed:
        said = f"{len(tasks.failed)} of {count + len(tasks.failed)} tasks cannot be made"
        raise CheckFailed(f"{said}; {tasks.failed[0]}", "correct sample(seed, level)")
    if not tasks.posed:
        raise CheckFailed(NO_TASK, "add at least one")
    for posed in tasks.posed:
        if not posed.task.prompt.strip():
            raise CheckFailed(f"the prompt of {posed} is empty", "write the question there")
    lengths = [len(posed.task.prompt) for posed in tasks.posed]
    different = len({(posed.task.system, posed.task.prompt) for posed in tasks.posed})
    same = f"; note: only {different} different prompts" if different < count else ""
    levels = f"{len(tasks.levels)} level{'s'[: len(tasks.levels) > 1]}"
    return (
        f"{count} of {levels}, prompts of {min(lengths)} to {max(lengths)} characters, "
        f"{tasks.rate:,.0f} tasks/s{same}"
    )


def _check_repeatable(tasks: ReviewedTasks) -> str:
    for posed in reversed(tasks.posed):
        if tasks.family.sample(posed.seed, posed.level) != posed.task:
            raise CheckFailed(
                f"{posed} gives another task when it is asked for again",
                "make all of it from the seed and the level, as with "
                'random.Random(f"{seed}/{level}")',
            )
    return ""


def _check_answers(tasks: ReviewedTasks) -> str:
    """Check that answers are there; a family that judges without them must have solutions."""
    empty = [posed for posed in tasks.posed if posed.task.answer in (None, "", [], {})]
    if empty and not has_solutions(tasks.family):
        raise CheckFailed(
            f"{len(empty)} of {len(tasks.posed)} tasks have no answer; the first: {empty[0]}",
            "return the answer that verify needs",
        )
    return f"note: {len(empty)} answers are empty" if empty else ""


def _check_right_answers(tasks: ReviewedTasks) -> str:
    own = has_solutions(tasks.family)
    right = [response is not None for response in tasks.right]
    if all(right):
        solved = [tasks.solution(posed) == response
                  for posed, response in zip(tasks.posed, tasks.right, strict=True)]  # fmt: skip
        if own and not all(solved):
            return f"note: {solved.count(False)} of {len(solved)} responses of solve do not"
        return "what solve returns" if own else "the answers themselves"
    first = tasks.posed[right.index(False)]
    response = tasks.solution(first) or answer_forms(first.task)[0]
    verdict = tasks.judge(first, response)
    said = "no verdict" if verdict is None else f"{verdict.reward:g} ({verdict.reason})"
    raise CheckFailed(
        f"{right.count(False)} of {len(right)} right answers do not get it: {response!r:.60} "
        f"gets {said} in {first}",
        "correct verify, or the answer"
        if own or any(right)
        else "correct verify; if responses have another form, add a solve(task) that returns one",
    )


def _check_wrong_answers(tasks: ReviewedTasks) -> str:
    """Check responses that are wrong in every task, and the right ones of other tasks."""
    for posed in tasks.posed:
        if (reward := tasks.reward(posed, "") or 0.0) > 0.0:
            raise CheckFailed(f"an empty response gets {reward:g} in {posed}", "correct verify")
    if all(tasks.is_right(posed, NONSENSE) for posed in tasks.posed):
        raise CheckFailed(f"{NONSENSE!r} gets 1 in every task", "correct verify")
    known = list(dict.fromkeys(each for each in tasks.right if each is not None))[:LISTED]
    listed = [each for each, right in zip(tasks.posed, tasks.right, strict=True) if right in known]
    if len(known) > 1 and all(tasks.is_right(each, " ".join(known)) for each in listed):
        raise CheckFailed(
            f"a response that lists the answers of {len(known)} tasks gets 1 in each of them",
            "compare the final answer (sterling.language.task.final_answer), not any part",
        )
    also_right = [
        tasks.is_right(posed, response)
        for posed, other, response in zip(
            tasks.posed[1:], tasks.posed[:-1], tasks.right[:-1], strict=True
        )
        if response is not None and not _is_same_question(posed, other)
    ]
    if not also_right:
        raise NotChecked("there are no two tasks with different answers, of which one is known")
    right = sum(also_right)
    if right == len(also_right):
        raise CheckFailed("the answer of every other task gets 1, too", "correct verify")
    share = f"note: {right / len(also_right):.0%} of the answers of other tasks are right, too"
    return share if right else ""


def _is_same_question(one: Posed, other: Posed) -> bool:
    return one.task.answer == other.task.answer or one.task.prompt == other.task.prompt


def _check_contradictions(tasks: ReviewedTasks) -> str:
    first: dict[tuple[str, str], Posed] = {}
    for posed, response in zip(tasks.posed, tasks.right, strict=True):
        other = first.setdefault((posed.task.system, posed.task.prompt), posed)
        if response is None or other.task.answer == posed.task.answer:
            continue
        if not tasks.is_right(other, response):
            raise CheckFailed(
                f"the question {posed.task.prompt!r:.60} has the answers "
                f"{other.task.answer!r:.30} and {posed.task.answer!r:.30}",
                "keep one of them",
            )
    return ""


def _check_same_verdict(tasks: ReviewedTasks) -> str:
    known = [
        (posed, response or "1") for posed, response in zip(tasks.posed, tasks.right, strict=True)
    ]
    asked = known[:: len(known) // 10 + 1]
    before = [tasks.judge(*each) for each in asked]
    if not any(before):
        raise NotChecked("no response gets a verdict")
    after = [tasks.judge(*each) for each in reversed(asked)][::-1]
    for (posed, response), one, two in zip(asked, before, after, strict=True):
        if one is not None and two is not None and one != two:
            raise CheckFailed(
                f"{response!r:.60} gets {one.reward:g}, then {two.reward:g} in {posed}",
                "let verify depend on the task and the response alone",
            )
    return ""


def _check_batch(tasks: ReviewedTasks) -> str:
    asked = tasks.batch[:SOME]
    judge = batch_judge(tasks.family, asked[0].task)
    assert judge is not None
    verdicts = judge.verify_batch([posed.task for posed in asked], [NONSENSE] * len(asked))
    if faults := [verdict.reason for verdict in verdicts if verdict.verifier_failed]:
        raise CheckFailed(
            f"{len(faults)} of {len(asked)} responses get none: {faults[0]}",
            "return a list with one number, or named ones, for each response",
        )
    return ""


def _check_verdicts(tasks: ReviewedTasks) -> str:
    """Check odd responses, and that no response of any check was left without a verdict."""
    for posed in tasks.posed[:SOME]:
        for response in ODD_RESPONSES:
            tasks.judge(posed, response)
    if tasks.no_verdict:
        raise CheckFailed(
            f"{len(tasks.no_verdict)} of {tasks.verdicts} responses get none; the first: "
            f"{tasks.no_verdict[0]}",
            "return True, False or a number from 0 to 1 for every text",
        )
    return f"{tasks.verdicts} verdicts, {tasks.verdicts / max(tasks.seconds, 1e-9):,.0f} verdicts/s"
