"""Which columns of a table hold what: names and wildcards, resolved against a table's columns."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence
from typing import Any

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

Names = str | Sequence[str]
MAX_COLUMNS_SHOWN = 20  # columns listed in a message


SEVERAL = ("obs", "action", "episode", "next_obs", "discrete", "continuous", "extra")
SINGLE = ("terminal", "timeout", "time")


@dataclasses.dataclass(frozen=True)
class TableLayout:
    """Which columns hold what, as a user names them; names may contain ``*`` and ``?``."""

    obs: Names
    action: Names
    reward: str | float | int | None = None  # a column, or the reward of every row
    episode: Names = ()  # rows with equal entries are one episode
    terminal: str | None = None  # whether the episode terminated in this row
    timeout: str | None = None  # whether the episode was truncated after this row
    next_obs: Names = ()
    time: str | None = None  # rows are put in this order
    gap: float | int | None = None  # a longer pause in time (dates: in seconds) separates episodes
    discrete: Names = ()  # actions that are choices; "u=left,right" also numbers them
    continuous: Names = ()  # actions that are real numbers though they look like choices
    extra: Names = ()  # further numbers to keep for every row
    terminal_at_end: bool = False  # every episode terminated in its last row
    one_episode: bool = False  # the whole table is one episode
    drop_incomplete: bool = False  # leave out rows with missing entries, and split episodes there

    def __post_init__(self) -> None:
        """Take the numbers that pandas calls unnamed columns by for names."""
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if field.name in SEVERAL:
                object.__setattr__(self, field.name, _as_names(given))
            elif field.name in SINGLE and given is not None:
                object.__setattr__(self, field.name, str(given))


def _as_names(given: Any) -> Any:
    """Return one name or several as text; a text with commas stays as it is."""
    if given is None or isinstance(given, str):
        return given
    several = hasattr(given, "__iter__")
    return [str(name) for name in given] if several else str(given)


@dataclasses.dataclass(frozen=True)
class TableColumns:
    """The columns of one table by their purpose."""

    obs: list[str]
    action: list[str]
    episode: list[str]
    next_obs: list[str]
    extra: list[str]
    reward: str = ""  # "": the constant reward
    terminal: str = ""
    timeout: str = ""
    time: str = ""
    constant_reward: float = 0.0
    # discrete action -> its choices in order; () where the numbers or texts decide
    choices: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    continuous: frozenset[str] = frozenset()

    @property
    def used(self) -> list[str]:
        """Return every column that is read, each once."""
        single = [self.reward, self.terminal, self.timeout, self.time]
        several = [*self.obs, *self.action, *self.episode, *self.next_obs, *self.extra]
        return list(dict.fromkeys(name for name in (*several, *single) if name))


def resolve_columns(layout: TableLayout, there: Sequence[str], table: str) -> TableColumns:
    """Return the columns that a layout names in a table with the columns ``there``.

    Raises Mistake for columns that do not exist, and for a layout without observations, actions or
    rewards, or without anything that says where episodes end.
    """
    _check_layout(layout)
    single = {
        word: _single_column(word, getattr(layout, word), there, table)
        for word in ("terminal", "timeout", "time")
    }
    reward, constant = _reward(layout.reward, there, table)
    choices = dict(_choices(layout.discrete, there, table))
    continuous = frozenset(_named(layout.continuous, there, table, "continuous"))
    taken = {*single.values(), reward, *_exact(layout, there)}
    found = {
        word: _named(getattr(layout, word), there, table, word, taken)
        for word in ("obs", "action", "episode", "next_obs", "extra")
    }
    parts: dict[str, Any] = {**found, **single, "choices": choices, "continuous": continuous}
    made = TableColumns(**parts, reward=reward, constant_reward=constant)
    _check_columns(made)
    return made


def split_names(names: Names) -> list[str]:
    """Return names given as a list, or as one text with commas between them."""
    if isinstance(names, str):
        names = names.split(",")
    return [name.strip() for name in names if name.strip()]


def _check_layout(layout: TableLayout) -> None:
    for word, what in (("obs", "observations"), ("action", "actions")):
        if not getattr(layout, word):
            raise Mistake(f"no column of {what} is named; add --{word} COLUMN,COLUMN")
    if layout.reward is None:
        raise Mistake(
            "no column of rewards is named; add --reward COLUMN, or --reward 0 for a table without "
            "rewards (to imitate, or to label with sterling data relabel)"
        )
    ends = (layout.episode, layout.gap, layout.terminal, layout.timeout, layout.one_episode)
    if all(end in (None, False, "", ()) or end == [] for end in ends):
        raise Mistake(
            "nothing says where episodes end; add --episode COLUMN, --time COLUMN --gap SECONDS, "
            "--terminal COLUMN or --timeout COLUMN, or --one-episode for a single one"
        )
    if layout.one_episode and (layout.episode or layout.gap):
        raise Mistake("--one-episode contradicts --episode and --gap; leave one of them out")
    if layout.gap is not None and (layout.time is None or not layout.gap > 0):
        raise Mistake("--gap needs a positive number and --time COLUMN, which it is measured in")
    if layout.terminal is not None and layout.terminal_at_end:
        raise Mistake("--terminal and --terminal-at-end contradict each other; leave one out")


def _reward(given: str | float | int | None, there: Sequence[str], table: str) -> tuple[str, float]:
    """Return the column of rewards and 0, or "" and the reward of every row."""
    if isinstance(given, str) and given not in there:
        try:
            return "", float(given)
        except ValueError:
            return _single_column("reward", given, there, table), 0.0
    return ("", float(given)) if isinstance(given, (int, float)) else (str(given), 0.0)


def _single_column(word: str, name: str | None, there: Sequence[str], table: str) -> str:
    if name is None:
        return ""
    found = _named([name], there, table, word)
    if len(found) != 1:
        raise Mistake(f"--{word} takes one column; {name!r} names {', '.join(found)}")
    return found[0]


def _exact(layout: TableLayout, there: Sequence[str]) -> set[str]:
    """Return the columns that a user names without a wildcard."""
    groups = (layout.obs, layout.action, layout.episode, layout.next_obs, layout.extra)
    return {name for names in groups for name in _unsplit(names, there) if name in there}


def _unsplit(names: Names, there: Sequence[str]) -> list[str]:
    """Return the names; a column whose own name contains commas is one name."""
    return [names] if isinstance(names, str) and names in there else split_names(names)


def _named(
    names: Names, there: Sequence[str], table: str, word: str, taken: set[str] | None = None
) -> list[str]:
    """Return the columns of ``names``; wildcards leave out those ``taken`` for something else."""
    found: list[str] = []
    for name in _unsplit(names, there):
        if name in there:
            found.append(name)
            continue
        met = [x for x in there if fnmatch.fnmatchcase(x, name) and x not in (taken or ())]
        if not met:
            shown = ", ".join([*there[:MAX_COLUMNS_SHOWN], *["..."] * (len(there) > 20)])
            near = did_you_mean(name, there, f"it has {shown}")
            option = word.replace("_", "-")
            raise Mistake(f"{table} has no column {name!r} for --{option}{near}")
        found += met
    return list(dict.fromkeys(found))


def _choices(given: Names, there: Sequence[str], table: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the discrete columns with their choices; "u=left,right" names these in order."""
    words = [given] if isinstance(given, str) else list(given)
    found: list[tuple[str, tuple[str, ...]]] = []
    for word in words:
        name, equals, listed = word.partition("=")
        if equals and word not in there:
            order = tuple(split_names(listed))
            if len(order) < 2 or len(set(order)) < len(order):
                raise Mistake(f"--discrete {word} must list two or more different choices")
            found.append((_single_column("discrete", name, there, table), order))
        else:
            found += [(each, ()) for each in _named(word, there, table, "discrete")]
    return found


def _check_columns(made: TableColumns) -> None:
    if made.next_obs and len(made.next_obs) != len(made.obs):
        raise Mistake(
            f"--next-obs names {len(made.next_obs)} columns and --obs {len(made.obs)}; name the "
            "same parts in the same order"
        )
    for name in (*made.choices, *made.continuous):
        if name not in made.action:
            word = "discrete" if name in made.choices else "continuous"
            raise Mistake(f"--{word} {name}: that is no column of --action")
    if both := set(made.choices) & made.continuous:
        raise Mistake(f"--discrete and --continuous both name {both.pop()}; leave one out")
