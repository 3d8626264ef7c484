"""Names of other libraries, and what they are called here (``peer_names.json``).

The table answers a user who types another library's name; nothing in it is accepted as a synonym.
Pages on moving from other libraries can be made from :func:`peer_table`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple

from sterling.lookup.name_suggestions import did_you_mean, nearest_names

KINDS = ("options", "algorithms", "environments", "calls")
# options of a run, as opposed to the fields of an algorithm's Config, that the table names
RUN_WORDS = (
    *("steps", "updates", "seeds", "envs", "environment", "data", "env_options", "out"),
    *("evaluate_every", "evaluate_episodes", "log_every", "checkpoint_minutes", "hindsight"),
    *("tensorboard", "wandb", "quiet", "top", "context", "forget", "model", "lora", "texts"),
    "judge",
)
COMMAND_LINE_WORDS = {"env_options": "env"}  # where the command line's word is another
SUFFIXES = ("trainer", "config")  # of classes: GRPOTrainer, IQLConfig


class PeerName(NamedTuple):
    """A name of another library. Environments have one example for each pattern of names."""

    peer: str  # the library
    version: str  # the version in which the name was found
    word: str
    here: str  # the name, or names, in Sterling; "": there is no counterpart
    remark: str  # what differs, or what to do instead


@functools.cache
def _read_table() -> dict[str, Any]:
    text = resources.files("sterling.lookup").joinpath("peer_names.json").read_text("utf-8")
    return dict(json.loads(text))


def peer_table(kind: str) -> list[PeerName]:
    """Return all names of a kind ("options", "algorithms", "environments" or "calls"), one for each
    library that has the name."""
    table = _read_table()
    return [
        PeerName(table["peers"][peer]["name"], table["peers"][peer]["version"], *_shown_row(row))
        for row in table[kind]
        for peer in row["peers"]
    ]


def _shown_row(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the name, the name here and the remark of a row of any kind."""
    if "pattern" in row:
        parts = re.fullmatch(row["pattern"], row["example"])
        known = {} if parts is None else {k: v or "" for k, v in parts.groupdict().items()}
        here = row["example_here"]
        return row["example"], here, row["remark"].format(**known, here=here)
    if isinstance(row["here"], list):
        return row["word"], " or ".join(row["here"]), row["remark"]
    fields = row.get("fields", {})
    return row["word"], " ".join([row["here"], *_as_options(fields)]), row["remark"]


def unknown_option(
    typed: str,
    known: Iterable[str],
    *,
    value: str | None = None,
    otherwise: str = "",
    owners: str = "",
    elsewhere: str = "",
) -> str:
    """Return the end of a message about an unknown option or field: what a name of another library
    is called here, or the nearest known name, or ``otherwise``.

    ``typed``: as the user wrote it, ``--learning-rate`` or ``learning_rate``; the answer has the
    same form. ``known``: the options in the same form. ``value``: as the user wrote it.
    ``owners``: the answer for an option that other commands of Sterling have ("": none has it).
    It comes before names of other libraries without a counterpart among ``known``. ``elsewhere``:
    the answer for a misspelt one that is nearer to an option of other commands than to ``known``.
    """
    known = list(known)
    name = typed.lstrip("-").replace("-", "_").lower()
    rows = [row for row in _read_table()["options"] if row["word"].lower() == name]
    dashes = typed.startswith("--")
    names = {each.lstrip("-").replace("-", "_") for each in known}
    names |= {word for word, typed_as in COMMAND_LINE_WORDS.items() if typed_as in names}
    has = [(row, next((word for word in row["here"] if word in names), "")) for row in rows]
    has += [(row, word) for row in rows for word in row["here"] if word in RUN_WORDS and not dashes]
    has = [one for one in has if one[1]]
    has = [one for one in has if one[1] not in RUN_WORDS] or has  # the algorithm's own fields first
    if has:
        return _called_here(has, dashes, value)
    if owners:
        trains = {"steps", "envs"} <= names  # where names of other libraries are expected, too
        remark = rows[0]["remark"] if trains and rows and not rows[0]["here"] else ""
        return owners + (f" ({remark})" if remark else "")
    if rows and not did_you_mean(typed, known):
        return _without_counterpart(rows[0], dashes)
    near = elsewhere or did_you_mean(typed, known) or _misspelt(name, names, dashes)
    return near or did_you_mean(typed, known, otherwise)


def _misspelt(name: str, names: set[str], dashes: bool) -> str:
    """Return what a misspelt name of another library is called among ``names``; "" if no name
    differs by few letters only: a part of a name, such as ``size``, is no misspelling of it."""
    here: dict[str, str] = {}
    for row in _read_table()["options"]:
        for word in filter(names.__contains__, row["here"]):
            here.setdefault(row["word"], word)
    near = nearest_names(name, [word for word in here if abs(len(word) - len(name)) <= 2])
    if not near:
        return ""
    return f"; did you mean {_form(near[0], dashes)}, which is {_form(here[near[0]], dashes)} here?"


def _called_here(has: list[tuple[Any, str]], dashes: bool, value: str | None) -> str:
    """Return the sentence for names that have a counterpart among the known options."""
    words = list(dict.fromkeys(word for _, word in has))
    row = next(row for row, word in has if word == words[0])
    forms = [_form(word, dashes) for word in words]
    text = f": it is called {' or '.join(forms)} here"
    if len(words) == 1 and row["value"] == "same" and value:
        text += f". Write {forms[0]} {value}" if dashes else f". Write {forms[0]}={value}"
    return text + (f" ({row['remark']})" if row["remark"] else "")


def _form(word: str, dashes: bool) -> str:
    typed = COMMAND_LINE_WORDS.get(word, word).replace("_", "-")
    return f"--{typed}" if dashes else word


def _without_counterpart(row: Mapping[str, Any], dashes: bool) -> str:
    if dashes and row["here"] and row["here"][0] in RUN_WORDS:  # this is another command
        return f": sterling train calls it {_form(row['here'][0], True)}"
    if row["here"]:
        where = " or ".join(row["here"])
        return f": it is called {where} in algorithms that have it, and this one has not"
    return f": {row['remark']}"


def unknown_algorithm(word: str) -> str:
    """Return what another library's algorithm is called here, as the end of a message; "" if no
    library has the name."""
    row = peer_algorithm(word)
    if row is None:
        return ""
    if not row["here"]:
        return f": {row['remark']}"
    text = f": the nearest here is {row['here']}" if row["nearest"] else ""
    text = text or f": it is called {row['here']} here"
    if row["fields"]:
        text += f", with {' '.join(_as_options(row['fields']))}"
    return text + (f" ({row['remark']})" if row["remark"] else "")


def peer_algorithm(word: str) -> Mapping[str, Any] | None:
    """Return the table's row about another library's algorithm; None if no library has the name."""
    alike = (class_name(word), word.lower())
    rows = _read_table()["algorithms"]
    return next((row for row in rows if class_name(row["word"]) in alike), None)


def unknown_call(word: str) -> str:
    """Return what to write in Python for a function, class or method that another library has, as
    the end of a message; "" if none has the name."""
    row = next((row for row in _read_table()["calls"] if row["word"] == word), None)
    if row is None:
        return ""
    if not row["here"]:
        return f": {row['remark']}"
    return f": write {row['here']}" + (f" ({row['remark']})" if row["remark"] else "")


def _as_options(fields: Mapping[str, Any]) -> list[str]:
    """Return fields as words of the command line."""
    made = []
    for name, value in fields.items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            made.append(f"--{word}" if value else f"--no-{word}")
        else:
            shown = f"{value:g}" if isinstance(value, float) else str(value).lower()
            made.append(f"--{word} {shown}")
    return made


def class_name(word: str) -> str:
    """Return a name without case, marks between words, and the endings of classes."""
    plain = re.sub(r"[\s_\-.]+", "", word.lower())
    for ending in SUFFIXES:
        plain = plain.removesuffix(ending) or plain
    return plain


def unknown_environment(name: str, known: Iterable[str]) -> str:
    """Return what another library's environment or dataset is called here, as the end of a
    message; "" if no library has the name, or the environment is not among ``known``."""
    names = {each.lower(): each for each in known}
    for row in _read_table()["environments"]:
        found = re.fullmatch(row["pattern"], name)
        if found is None:
            continue
        parts = {key: value or "" for key, value in found.groupdict().items()}
        here = names.get(row["here"].format(**parts).lower(), "")
        if row["here"] and not here:
            continue
        remark = row["remark"].format(**parts, here=here)
        if row["dataset"]:
            return f": it is {remark}" + (f". Its environment is {here}" if here else "")
        return f": it is called {here} here" + (f" ({remark})" if remark else "")
    return ""
