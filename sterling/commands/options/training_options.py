"""Options shared by commands that train: the file of settings, the environment, language models."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.commands.options import algorithm_options, option_values
from sterling.system.mistake import Mistake


def find_algorithm(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """Return the algorithm among the words of a command line, or the one that its --config file
    names, or None. See ``algorithm_options.find_algorithm``."""
    return algorithm_options.find_algorithm(parser, words, _file_algorithm(words))


def _file_algorithm(words: Sequence[str]) -> str | None:
    """Return the algorithm that a --config file among the words names, or None; also None if the
    file cannot be read, which is reported when it is used."""
    path = option_values.option_value("--config", words)
    if path is None:
        return None
    from sterling.training.config.config_file import read_config_file

    try:
        found = read_config_file(path).get("algorithm")
    except Mistake:
        return None
    return None if found is None else str(found)


def add_config_option(add: Any) -> None:
    """Add the option for a file of settings."""
    file = "a file of settings (.yaml, .json or .toml; sterling show RUN --config prints one); "
    file += "options given here replace the file's"
    add("--config", type=Path, metavar="FILE", help=file)


def add_environment_options(add: Any) -> None:
    """Add the options of the environment."""
    add_env_option(add)
    cut = "end an episode of the environment after N steps (the environment's own limit)"
    add("--max-episode-steps", type=option_values.integer, metavar="N", help=cut)


def add_env_option(add: Any) -> None:
    """Add the option for one of the environment's own options."""
    example = "an option of the environment, such as frame_skip=2; may be repeated"
    add(
        "--env",
        type=option_values.key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=example,
    )


def add_init_option(add: Any) -> None:
    """Add the option for what the agents start from."""
    start = (
        "start from the last checkpoint of a run (RUN:seed=N: of one seed), from a model.zip of "
    )
    start += (
        "Stable-Baselines3 (model.zip+vec_normalize.pkl: with what its VecNormalize saved), or "
    )
    start += "from a .safetensors file (docs/warm-starts.md)"
    add("--init", metavar="RUN", help=start)


def add_preset_option(add: Any) -> None:
    """Add the switch for the settings tuned for an environment."""
    tuned = "use the settings tuned for this environment, if there are any (on)"
    add("--preset", action=argparse.BooleanOptionalAction, help=tuned)


def add_language_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for training language models."""
    add = parser.add_argument_group("training a language model").add_argument
    which = "a new model (nano, tiny or small), a Hugging Face folder, or a run that trained a "
    which += "model; default: tiny"
    add("--model", metavar="MODEL", help=which)
    taught = (
        "the language model that gkd imitates (a Hugging Face folder, or a run), or distill's run"
    )
    add("--teacher", metavar="FOLDER", help=taught)
    levels = "difficulty levels of the questions, such as 2, 0-3 or 1,4 (the easiest)"
    add("--levels", metavar="L", help=levels)
    kept = "share of all questions, or of the rows of --texts without an ENVIRONMENT, held out for "
    kept += "evaluation, never trained on (0)"
    add("--held-out", type=option_values.number, metavar="X", help=kept)
    _add_reward_options(add)
    what = "how questions are chosen: uniform, advantage or learnable (uniform)"
    add("--curriculum", metavar="WORD", help=what)
    texts = "JSONL file of texts to imitate or compare, with or without an ENVIRONMENT to be "
    texts += "evaluated in (the environment's own solutions)"
    add("--texts", metavar="FILE", help=texts)
    solutions = "number of the environment's solutions to imitate (4096)"
    add("--examples", type=option_values.integer, metavar="N", help=solutions)
    longest = "longest sequence in tokens (as long as the environment's scenes need)"
    add("--context", type=option_values.integer, metavar="N", help=longest)
    slots = "answers generated in parallel (64)"
    add("--slots", type=option_values.integer, metavar="N", help=slots)
    rank = "train only LoRA adapters of rank N (all weights)"
    add("--lora", type=option_values.integer, metavar="N", help=rank)
    again = "recompute layers for the gradient: less memory, more computation"
    add("--forget", action=argparse.BooleanOptionalAction, help=again)
    add("--dump", metavar="FOLDER", help="write every batch of answers into this folder")
    replayed = "train on the batches of a --dump folder instead of new answers"
    add("--replay", metavar="FOLDER", help=replayed)
    pool = "a --dump folder whose right answers are replayed (how many: --again)"
    add("--pool", metavar="FOLDER", help=pool)
    hangs = "seconds that a scene may take to respond (10)"
    add("--scene-seconds", type=option_values.number, metavar="X", help=hangs)


def _add_reward_options(add: Any) -> None:
    """Add the options for who rewards answers, and how named rewards are combined."""
    judged = "a function of yours that rewards answers, as mine.py:score, or a language model: its "
    judged += "folder, or a run (docs/judges.md)"
    add("--judge", metavar="FILE.py:FUNCTION|FOLDER", help=judged)
    asked = "what a language model that judges is asked, with {prompt}, {response}, {score:0-10} "
    asked += (
        "and columns such as {answer}, or with {first} and {second}, which it compares; a file "
    )
    asked += "or a text (docs/judges.md)"
    add("--rubric", metavar="FILE", help=asked)
    longest = "most tokens of the judge's answer (256)"
    add("--judge-limit", type=option_values.integer, metavar="N", help=longest)
    rule = "how named rewards are combined, as right+0.2*format or right*gate(format) (added up)"
    add("--rewards", metavar="RULE", help=rule)
    alone = "normalise each term of --rewards by itself in its group (docs/language_losses.md)"
    add("--rewards-each", action=argparse.BooleanOptionalAction, help=alone)
    right = "which answers are right, by a named reward, as format>=0.5 (those with a right of 1)"
    add("--right-if", metavar="CONDITION", help=right)


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for training the model of an agent program."""
    add = parser.add_argument_group("training the model of an agent program").add_argument
    program = "a program that works on tasks with the model: a command, as 'python my_agent.py', "
    program += "or a function, as my_agent.py:run (docs/agent-programs.md)"
    add("--agent", metavar="COMMAND", help=program)
    where = "its tasks, one JSON object in each line; another name of --environment"
    add("--tasks", dest="environment", metavar="FILE.jsonl", help=where)
    late = "seconds that the program may run, without its waiting for the model (60)"
    add("--agent-seconds", type=option_values.number, metavar="X", help=late)
    most = "answers that the program may get in a run on a task (8)"
    add("--agent-turns", type=option_values.integer, metavar="N", help=most)
    tokens = "tokens of all answers of a run, at most; the last one is cut (any number)"
    add("--agent-tokens", type=option_values.integer, metavar="N", help=tokens)
    apart = "conversations of a run that do not continue each other, at most (4)"
    add("--agent-contexts", type=option_values.integer, metavar="N", help=apart)
    likely = "top_logprobs that its requests may ask for, at most (0)"
    add("--agent-top-logprobs", type=option_values.integer, metavar="N", help=likely)
    many = "programs that run at a time (16)"
    add("--agents-at-once", type=option_values.integer, metavar="N", help=many)
    fails = "reward of a program that fails before it gives one (the lowest of its group)"
    add("--failed-reward", type=option_values.number, metavar="X", help=fails)
