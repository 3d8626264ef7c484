"""What only critics see: entries of a dict observation that policies are not given.

``Spec.unseen`` names them, above all ``state``, the whole state of a world of several agents, which
belongs to all of them together and has no axis of agents. A world answers with them as with any
other entry, so whatever carries observations needs to know nothing of it. They are taken away in
one place, :class:`Blind`, which stands between an algorithm and everybody who calls it. An
algorithm with a critic that uses them says so by ``uses_unseen = True``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from gymnasium import spaces

STATE = "state"  # the usual name
ACTING = ("act", "recall", "log_prob")  # functions of a policy: unseen entries are never for them
KEPT = ("action_mask", "alive")  # entries that whoever acts must see


def checked(names: Any, space: spaces.Space[Any]) -> tuple[str, ...]:
    """Return ``names``, a tuple of words, or raise Mistake where they are not entries of the dict
    observation ``space``, or leave a policy nothing to see."""
    from sterling.types import Mistake

    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise Mistake(
            f"unseen={names!r} is no tuple of names; write for instance unseen=('state',)"
        )
    found = tuple(names)
    entries = set(space.spaces) if isinstance(space, spaces.Dict) else set()
    for name in found:
        if name not in entries:
            said = ", ".join(sorted(entries)) or "none: it is no Dict"
            raise Mistake(f"unseen names {name!r}, and the observation's entries are {said}")
        if name in KEPT:
            raise Mistake(f"{name!r} cannot be unseen, policies go by it; leave it out of unseen")
    if found and not entries - {*found, *KEPT}:
        raise Mistake(f"nothing is left for policies to see beside unseen={found}; name fewer")
    return found


def without(obs: Any, names: tuple[str, ...]) -> Any:
    """Return observations without the entries called ``names``, whether or not they are there."""
    if not names or not isinstance(obs, dict):
        return obs
    return {name: x for name, x in obs.items() if name not in names}


def space_without(space: spaces.Space[Any], names: tuple[str, ...]) -> spaces.Space[Any]:
    """Return the space of what :func:`without` leaves."""
    if not names or not isinstance(space, spaces.Dict):
        return space
    return spaces.Dict({name: part for name, part in space.spaces.items() if name not in names})


def spec_without(spec: Any) -> Any:
    """Return the problem (:class:`sterling.types.Spec`) of those who get no unseen entry."""
    if not spec.unseen:
        return spec
    log, names = spec.log, spec.unseen
    if log is not None:
        moments = {each: without(getattr(log, each), names) for each in ("obs_mean", "obs_std")}
        log = dataclasses.replace(log, **moments)
    return dataclasses.replace(spec, obs=space_without(spec.obs, names), log=log, unseen=())


def blinded(algorithm: Any, names: tuple[str, ...]) -> Any:
    """Return ``algorithm`` as it is to be called where observations have unseen entries ``names``;
    itself where they have none."""
    return Blind(algorithm, names) if names else algorithm


@dataclasses.dataclass(frozen=True)
class Blind:
    """An algorithm that is not given the entries called ``names``: not in the problem it is made
    for, not in observations it acts on, not in batches it learns from.

    One that ``uses_unseen`` is given them everywhere but where it acts (``ACTING``).
    """

    algorithm: Any
    names: tuple[str, ...]

    @property
    def Config(self) -> Any:
        """The algorithm's own."""
        return self.algorithm.Config

    def needs(self, config: Any) -> Any:
        """The algorithm's own."""
        return self.algorithm.needs(config)

    def init(self, key: Any, spec: Any, config: Any) -> Any:
        """A fresh state, for the problem that the algorithm is given."""
        return self.algorithm.init(key, spec if self._is_sighted else spec_without(spec), config)

    def __getattr__(self, name: str) -> Any:
        """Return what the algorithm offers under that name; a function that is given no unseen
        entry in any argument but its first, which is the algorithm's own state."""
        if name == "algorithm":  # not made yet: as it is copied
            raise AttributeError(name)
        found = getattr(self.algorithm, name)
        if not callable(found) or (self._is_sighted and name not in ACTING):
            return found

        def called(state: Any, *given: Any, **more: Any) -> Any:
            return found(state, *map(self._hidden, given), **more)

        return called

    @property
    def _is_sighted(self) -> bool:
        return bool(getattr(self.algorithm, "uses_unseen", False))

    def _hidden(self, given: Any) -> Any:
        """An argument without unseen entries: an observation, or a batch of them."""
        from sterling.types import Record

        if not isinstance(given, Record):
            return without(given, self.names)
        obs, following = (without(x, self.names) for x in (given.obs, given.next_obs))
        return dataclasses.replace(given, obs=obs, next_obs=following)
