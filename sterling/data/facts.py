"""What is known of a dataset beside its numbers: where every episode came from, what counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from sterling.data.spaces import Space, from_json, to_json
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Source:
    """Where some of the episodes came from."""

    name: str = ""  # of the file, or of what made it
    format: str = ""  # that it was read from
    generator: str = ""  # program, algorithm or page that made it
    commit: str = ""  # of the generator
    policy: str = ""  # hash of the behaviour policy
    hash: str = ""  # of the source's content
    notes: tuple[str, ...] = ()  # what had to be assumed, dropped or repaired


@dataclasses.dataclass(frozen=True)
class Facts:
    """A dataset's environment, its reference scores, and the provenance of every part."""

    environment: str = ""  # id, such as "HalfCheetah-v5"
    reference: tuple[float, float] | None = None  # the returns that count as 0 and as 1
    sources: tuple[Source, ...] = (Source(),)  # of the episodes, by their numbers
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # the environment was given

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Facts:
        """The inverse; entries that are not known are passed over."""
        known = {field.name for field in dataclasses.fields(Source)}
        sources = [
            Source(**{**{k: v for k, v in one.items() if k in known}, "notes": tuple(one["notes"])})
            for one in said.get("sources", [])
        ]
        ends = said.get("reference")
        reference = (float(ends[0]), float(ends[1])) if ends else None
        options = dict(said.get("options", {}))
        return cls(said.get("environment", ""), reference, tuple(sources) or (Source(),), options)

    def noted(self, *notes: str) -> Facts:
        """The same with notes added to every source."""
        fresh = [dataclasses.replace(one, notes=(*one.notes, *notes)) for one in self.sources]
        return dataclasses.replace(self, sources=tuple(fresh))

    def without(self, note: str) -> Facts:
        """The same without a note."""
        fresh = [
            dataclasses.replace(one, notes=tuple(said for said in one.notes if said != note))
            for one in self.sources
        ]
        return dataclasses.replace(self, sources=tuple(fresh))


@dataclasses.dataclass(frozen=True)
class Passport:
    """What is written beside the numbers, in every format that has a place for it."""

    obs_space: Space
    action_space: Space
    facts: Facts
    sources: Int[np.ndarray, "episode"]  # the number of each episode's source
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; the sources as runs of equal numbers."""
        return {
            "spaces": {"obs": to_json(self.obs_space), "action": to_json(self.action_space)},
            "facts": self.facts.to_json(),
            "sources": _runs(self.sources),
            "hash": self.hash,
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Passport:
        """The inverse; raises Mistake where something is missing."""
        try:
            runs = said["sources"]
            spaces = said["spaces"]
            return cls(
                from_json(spaces["obs"]),
                from_json(spaces["action"]),
                Facts.from_json(said["facts"]),
                np.repeat([n for n, _ in runs], [c for _, c in runs]).astype(np.int32),
                said["hash"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Mistake(f"its description is damaged ({error!r}); restore the file") from error

    def sources_of(self, first: int, count: int) -> Int[np.ndarray, "episode"]:
        """The sources of some episodes; raises Mistake if it does not speak of so many."""
        if first + count > len(self.sources):
            raise Mistake(
                f"there are more episodes than the {len(self.sources)} that were written; restore "
                "the file"
            )
        return self.sources[first : first + count]


def _runs(numbers: Int[np.ndarray, "episode"]) -> Sequence[tuple[int, int]]:
    """Each run of equal numbers: the number and how often it stands there."""
    if not len(numbers):
        return []
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    counts = np.diff([*begins, len(numbers)])
    return [(int(numbers[at]), int(many)) for at, many in zip(begins, counts, strict=True)]
