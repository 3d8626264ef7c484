"""The metadata of a dataset: environment, reference scores, and each episode's provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Int

from sterling.data.space_json import Space, space_from_json, space_to_json
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Source:
    """The provenance of some of the episodes."""

    name: str = ""  # of the file, or of what generated it
    format: str = ""  # file format it was read from
    generator: str = ""  # program, algorithm or page that generated it
    commit: str = ""  # git commit of the generator
    policy: str = ""  # hash of the behaviour policy
    hash: str = ""  # of the source's content
    notes: tuple[str, ...] = ()  # what was assumed, dropped or repaired


@dataclasses.dataclass(frozen=True)
class Facts:
    """A dataset's environment, reference scores, and sources of its episodes."""

    environment: str = ""  # id, such as "HalfCheetah-v5"
    reference: tuple[float, float] | None = None  # the returns that count as 0 and as 1
    sources: tuple[Source, ...] = (Source(),)  # each episode holds an index into these
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the environment
    # of datasets from tables: "obs" and "action" -> the column of each number; "action=COLUMN" ->
    # the texts or numbers that its choices are in the table
    labels: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """The steps after which the environment truncated an episode: its option
        ``max_episode_steps``, or else what Gymnasium registered; None if never, or unknown."""
        known = gymnasium.registry.get(self.environment)
        usual = known.max_episode_steps if known is not None else None
        given = self.options.get("max_episode_steps", usual)
        return int(given) if given is not None and given > 0 else None  # 0 and -1: never

    def to_json(self) -> dict[str, Any]:
        """Return plain values under the fields' names; labels only where there are any."""
        made = dataclasses.asdict(self)
        return made if self.labels else {k: v for k, v in made.items() if k != "labels"}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Facts:
        """Return the Facts that :meth:`to_json` wrote; unknown entries of sources are ignored."""
        known = {field.name for field in dataclasses.fields(Source)}
        sources = [
            Source(**{**{k: v for k, v in one.items() if k in known}, "notes": tuple(one["notes"])})
            for one in stored.get("sources", [])
        ]
        ends = stored.get("reference")
        reference = (float(ends[0]), float(ends[1])) if ends else None
        options, labels = dict(stored.get("options", {})), dict(stored.get("labels", {}))
        named = stored.get("environment", "")
        return cls(named, reference, tuple(sources) or (Source(),), options, labels)

    def with_notes(self, *notes: str) -> Facts:
        """Return the same facts with notes added to every source."""
        fresh = [dataclasses.replace(one, notes=(*one.notes, *notes)) for one in self.sources]
        return dataclasses.replace(self, sources=tuple(fresh))

    def without(self, note: str) -> Facts:
        """Return the same facts with one note removed from every source."""
        fresh = [
            dataclasses.replace(one, notes=tuple(each for each in one.notes if each != note))
            for one in self.sources
        ]
        return dataclasses.replace(self, sources=tuple(fresh))


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What is written beside the numbers, in every format that can store it."""

    obs_space: Space
    action_space: Space
    facts: Facts
    sources: Int[np.ndarray, "episode"]  # the number of each episode's source
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the sources are run-length encoded."""
        return {
            "spaces": {
                "obs": space_to_json(self.obs_space),
                "action": space_to_json(self.action_space),
            },
            "facts": self.facts.to_json(),
            "sources": _run_lengths(self.sources),
            "hash": self.hash,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Metadata:
        """Return the Metadata that :meth:`to_json` wrote; raise Mistake if a part is missing."""
        try:
            runs = stored["sources"]
            spaces = stored["spaces"]
            return cls(
                space_from_json(spaces["obs"]),
                space_from_json(spaces["action"]),
                Facts.from_json(stored["facts"]),
                np.repeat([n for n, _ in runs], [c for _, c in runs]).astype(np.int32),
                stored["hash"],
            )
        except (KeyError, TypeError, ValueError) as error:
            message = f"The dataset's description is damaged ({error!r}). Restore the file."
            raise Mistake(message) from error

    def sources_of(self, first: int, count: int) -> Int[np.ndarray, "episode"]:
        """Return the sources of ``count`` episodes from ``first`` on; raise Mistake if fewer
        episodes were written."""
        if first + count > len(self.sources):
            raise Mistake(
                f"The file has more episodes than the {len(self.sources)} in its description. "
                "Restore the file."
            )
        return self.sources[first : first + count]


def check_reference_scores(reference: tuple[float, float] | None) -> None:
    """Raise Mistake unless the first reference score is below the second."""
    if reference is not None and not reference[0] < reference[1]:
        raise Mistake(
            f"Reference scores must be LOW HIGH, with LOW < HIGH (the returns that count as 0 and "
            f"as 1); got {reference[0]:g} and {reference[1]:g}."
        )


def _run_lengths(numbers: Int[np.ndarray, "episode"]) -> Sequence[tuple[int, int]]:
    """Return the run-length encoding: each number, and how often it repeats."""
    if not len(numbers):
        return []
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    counts = np.diff([*begins, len(numbers)])
    return [(int(numbers[at]), int(many)) for at, many in zip(begins, counts, strict=True)]
