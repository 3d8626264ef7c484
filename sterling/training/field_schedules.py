"""Set the scheduled fields of the agents' Configs at the beginning of every iteration.

A scheduled field is a leaf of the state's Config, so algorithms read its current value as they read
any other field. The value depends on the run's iteration alone: nothing has to be saved.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sterling.config_class import replace_leaves
from sterling.schedules import Function
from sterling.types import Mistake

COLUMN_PREFIX = "schedule/"  # of the columns of metrics rows


@dataclasses.dataclass(frozen=True)
class Span:
    """The schedule of a field, and the iterations of the run that it covers."""

    function: Function
    begin: int
    end: int


class FieldSchedules(eqx.Module):
    """The schedules of a phase: the functions are part of the program, the iterations are not."""

    names: tuple[str, ...] = eqx.field(static=True)
    functions: tuple[Function, ...] = eqx.field(static=True)
    begins: Int[Array, "field"]
    ends: Int[Array, "field"]

    @classmethod
    def from_spans(cls, spans: dict[str, Span]) -> FieldSchedules | None:
        """Return the schedules of these fields; None if there are none."""
        if not spans:
            return None
        begins, ends = (
            jnp.asarray([getattr(span, name) for span in spans.values()], jnp.int32)
            for name in ("begin", "end")
        )
        return cls(tuple(spans), tuple(span.function for span in spans.values()), begins, ends)

    def values(self, iteration: Int[Array, ""]) -> dict[str, Float[Array, ""]]:
        """Return each field's value in this iteration."""
        done = (iteration - self.begins).astype(jnp.float32)
        progress = jnp.clip(done / (self.ends - self.begins).astype(jnp.float32), 0.0, 1.0)
        found = {name: _scalar(function(progress[index]))
                 for index, (name, function) in enumerate(self._pairs())}  # fmt: skip
        # else XLA may compute the same value with other instructions for other numbers of seeds
        return jax.lax.optimization_barrier(found)

    def set_fields(self, state: Any, iteration: Int[Array, ""], algorithm: str) -> Any:
        """Return the state of all seeds with the fields' values in this iteration.

        Raise :class:`Mistake` if the State holds no Config.
        """
        if not hasattr(state, "config"):
            raise Mistake(f"{algorithm}: State has no `config`, so fields cannot change. Add it.")
        seeds = len(jax.tree.leaves(state)[0])
        new = {name: jnp.broadcast_to(x, (seeds,)) for name, x in self.values(iteration).items()}
        config = replace_leaves(state.config, new)
        return eqx.tree_at(lambda state: state.config, state, config)

    def columns(self, state: Any) -> dict[str, Float[np.ndarray, "seed"]]:
        """Return the current value of each field for every seed, by its column's name."""
        return {COLUMN_PREFIX + name: np.asarray(getattr(state.config, name), np.float64)
                for name in self.names}  # fmt: skip

    def _pairs(self) -> list[tuple[str, Function]]:
        return list(zip(self.names, self.functions, strict=True))


def _scalar(value: Any) -> Float[Array, ""]:
    return jnp.asarray(value, jnp.float32).reshape(())
