"""A wrapper around an algorithm that removes critic-only entries from observations and batches."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sterling.problem import critic_only_obs
from sterling.types import Record, Spec

POLICY_FUNCTIONS = ("act", "recall", "prior", "log_prob")  # they never get unseen entries


def hide_unseen(algorithm: Any, spec: Spec) -> Any:
    """Return ``algorithm`` wrapped so that its policy does not get the problem's unseen entries;
    the algorithm itself if there are none."""
    if not spec.unseen:
        return algorithm
    sighted = spec.critic_sees and getattr(algorithm, "can_use_unseen", False)
    return BlindedAlgorithm(algorithm, spec.unseen, _entries(spec) if sighted else ())


class Entry(NamedTuple):
    """An entry of a dict observation: its name, its form, and its leaves' shapes and types."""

    name: str
    form: Any
    leaves: tuple[tuple[tuple[int, ...], str], ...]


@dataclasses.dataclass(frozen=True)
class BlindedAlgorithm:
    """An algorithm that does not get the entries ``names``: not in its spec, not in observations,
    not in batches.

    An algorithm with ``uses_unseen`` gets them in all functions but a policy's
    (``POLICY_FUNCTIONS``). So does one for which ``entries`` describes the whole observation: its
    policy gets zeros in their place, because it shares an encoder with the critic, and does not
    read them.
    """

    algorithm: Any
    names: tuple[str, ...]
    entries: tuple[Entry, ...] = ()

    @property
    def Config(self) -> Any:
        """Return the algorithm's."""
        return self.algorithm.Config

    def needs(self, config: Any) -> Any:
        """Return the algorithm's."""
        return self.algorithm.needs(config)

    def init(self, key: Any, spec: Any, config: Any) -> Any:
        """Return a new state, for the problem as the algorithm sees it."""
        seen = spec if self._is_sighted else critic_only_obs.spec_without_unseen(spec)
        return self.algorithm.init(key, seen, config)

    def __getattr__(self, name: str) -> Any:
        """Return the algorithm's attribute. Functions are wrapped: they get no unseen entry in any
        argument but the first, which is the algorithm's own state."""
        if name == "algorithm":  # not set yet, while the object is copied
            raise AttributeError(name)
        found = getattr(self.algorithm, name)
        if not callable(found) or (self._is_sighted and name not in POLICY_FUNCTIONS):
            return found

        def called(state: Any, *given: Any, **more: Any) -> Any:
            return found(state, *map(self._hidden, given), **more)

        return called

    @property
    def _is_sighted(self) -> bool:
        return bool(self.entries or getattr(self.algorithm, "uses_unseen", False))

    def _hidden(self, given: Any) -> Any:
        """Return an argument (an observation or a batch) without unseen entries."""
        if not isinstance(given, Record):
            seen = critic_only_obs.without_entries(given, self.names)
            return self._filled(seen) if self._is_obs(seen) else seen
        obs, following = (
            critic_only_obs.without_entries(x, self.names) for x in (given.obs, given.next_obs)
        )
        beside = {name: self._hidden(each) for name, each in given.beside.items()}
        return dataclasses.replace(given, obs=obs, next_obs=following, beside=beside)

    def _is_obs(self, given: Any) -> bool:
        """Whether an argument of a policy is an observation that must be filled."""
        seen = {entry.name for entry in self.entries} - set(self.names)
        return bool(self.entries) and isinstance(given, dict) and set(given) == seen

    def _filled(self, obs: dict[str, Any]) -> dict[str, Any]:
        """Return an observation with zeros for its unseen entries."""
        known = next(entry for entry in self.entries if entry.name in obs)
        first = jax.tree.leaves(obs[known.name])[0]
        lead = first.shape[: first.ndim - len(known.leaves[0][0])]
        zeros = {
            entry.name: jax.tree.unflatten(
                entry.form, [jnp.zeros((*lead, *shape), kind) for shape, kind in entry.leaves]
            )
            for entry in self.entries
            if entry.name in self.names
        }
        return {**obs, **zeros}


def _entries(spec: Spec) -> tuple[Entry, ...]:
    """Return the entries of the problem's dict observation."""
    found = []
    for name, space in sorted(spec.obs.spaces.items()):  # type: ignore[attr-defined]
        leaves, form = jax.tree.flatten(space.sample())
        arrays = [np.asarray(leaf) for leaf in leaves]
        kinds = tuple((x.shape, jax.dtypes.canonicalize_dtype(x.dtype).name) for x in arrays)
        found.append(Entry(name, form, kinds))
    return tuple(found)
