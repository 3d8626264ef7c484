"""Ensembles: several networks of one form as one, whose every leaf is ``(member, ...)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key

from sterling import random_keys


class Ensemble(eqx.Module):
    """Networks that differ only in their parameters, compiled once."""

    nets: Any  # the network of one member, with leaves ``(member, ...)``

    @classmethod
    def create(
        cls, key: Key[Array, ""], members: int, make: Callable[[Key[Array, ""]], Any]
    ) -> Ensemble:
        """Create the network ``make(key)`` of each of ``members`` members."""
        return cls(eqx.filter_vmap(make)(random_keys.split(key, "member", members)))

    def __call__(self, *inputs: Any) -> Any:
        """Return every member's outputs for the same inputs, with leaves ``(member, ...)``."""
        return eqx.filter_vmap(lambda net: net(*inputs))(self.nets)

    def take(self, index: Int[Array, "some"]) -> Ensemble:
        """Return the ensemble of the members at ``index``."""
        return Ensemble(jax.tree.map(lambda x: x[index], self.nets))

    def random_pair(self, key: Key[Array, ""]) -> Ensemble:
        """Return two different members, every pair equally often."""
        members = len(jax.tree.leaves(self.nets)[0])
        return self.take(jax.random.permutation(key, members)[:2])
