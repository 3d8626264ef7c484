"""The process that runs the untrusted code and answers the judge's questions about it."""

import contextlib
import fcntl
import json
import math
import os
import resource
import sys
from typing import Any

from sterling.language.sandbox.json_values import ValueCodec

MEGABYTE = 2**20


def confine_process(order: dict[str, Any], questions: int, answers: int) -> None:
    """Restrict this process to its input, its output, the pipes ``questions`` and ``answers``
    (which become descriptors 3 and 4), and its limits. It gets a session of its own, so that
    signals to its process group reach no other process."""
    os.setsid()
    source = os.open("input", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink("input")
    with os.fdopen(os.dup(source), "w", encoding="utf-8", errors="replace") as file:
        file.write(order["stdin"])
    os.lseek(source, 0, os.SEEK_SET)
    pipes = (source, questions, answers)
    source, questions, answers = (fcntl.fcntl(each, fcntl.F_DUPFD, 50) for each in pipes)
    for wanted, pipe in {0: source, 3: questions, 4: answers}.items():
        os.dup2(pipe, wanted)
    os.closerange(5, 65_536)
    limits = order["limits"]
    for name, most in {
        "CPU": math.ceil(limits["seconds"]) + 1,
        "AS": limits["memory"] * MEGABYTE,
        "FSIZE": limits["disk"] * MEGABYTE,
        "NOFILE": limits["files"],
        "NPROC": limits["processes"] + 2,  # the guard and the judge
        "CORE": 0,
    }.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def run_solution(order: dict[str, Any]) -> None:
    """Load the code, report how that went, then answer questions until the judge is gone."""
    script, values = order["script"], ValueCodec()
    names: dict[str, Any] = {"__name__": "__main__" if script else "solution"}
    out = os.fdopen(4, "w", buffering=1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def say(**reply: Any) -> None:
        out.write(json.dumps(reply) + "\n")

    try:
        (_run_script if script else _run_module)(order["code"], names)
    except BaseException as error:  # whatever the code raises is an answer
        say(**_describe_exception(error))
    else:
        say(names=[name for name in names if not name.startswith("__")])
    with contextlib.suppress(Exception):  # the code may have replaced or closed its streams
        sys.stdout.flush()
        sys.stderr.flush()
    if script:
        return
    for line in os.fdopen(3):
        try:
            reply = _answer_question(json.loads(line), names, values)
        except BaseException as error:  # as above
            reply = _describe_exception(error)
        say(**reply)


def _run_module(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "<solution>", "exec"), names)


def _run_script(code: str, names: dict[str, Any]) -> None:
    """Run a script; as in a notebook, the value of a last expression is printed."""
    import ast

    try:
        tree = ast.parse(code, "<code>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), "<code>", "eval"), names)
            if shown is not None:
                print(repr(shown))
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    except BaseException as error:
        own = error.__traceback__  # hide this function's frame from the code
        error = error.with_traceback(own.tb_next if own else None)
        sys.__excepthook__(type(error), error, error.__traceback__)
        raise


def _answer_question(ask: list[Any], names: dict[str, Any], values: ValueCodec) -> dict[str, Any]:
    what, target, detail = ask
    if what == "name":
        return {"value": values.encode(names[target])}
    if what == "attribute":
        return {"value": values.encode(getattr(values.resolve(target), detail))}
    if what == "iterate":
        return {"value": values.refer(iter(values.resolve(target)))}
    if what == "next":
        return {"value": values.encode(_next_item(values.resolve(target)))}
    positional, named = values.decode(detail[0]), values.decode(detail[1])
    value = values.resolve(target)(*positional, **named)
    return {"value": values.encode(value), "after": values.encode(positional)}


def _next_item(iterator: Any) -> list[Any]:
    try:
        return [next(iterator)]
    except StopIteration:
        return []


def _describe_exception(error: BaseException) -> dict[str, Any]:
    """Return an exception as the nearest built-in kind and its text."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    own = type(error).__name__
    return {"raised": [kinds[0], f"{error}" if own == kinds[0] else f"{own}: {error}"]}
