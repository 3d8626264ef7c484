"""Stream SARSA(lambda) (Elsayed 2024): the update of a step is made when the next action is
known."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online.dqn import epsilon
from oracles.pieces import streams
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient

NET = ".net.advantage"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Finish the update of the step before, then begin that of this row; return the metrics and
    the TD error of the step before."""
    row, first = streams.row_of(batch), {"policy/epsilon": epsilon(state, config)}
    action, obs = int(row["action"]), streams.seen(state, row["obs"])
    continued = streams.is_continued(state, row)

    def chosen() -> float:
        return float(streams.outputs(state, NET, obs)[action])

    known, discount = state[".pending"]
    error = known + discount * chosen() if continued else 0.0
    size = streams.obgd(state, ".net", error, config["lr"], kappa=config["kappa"])
    reward, q = streams.scaled_reward(state, row, config), chosen()
    decay = config["gamma"] * config["trace_lambda"] * float(state[".share"]) if continued else 0.0
    trace = decay * state.vector(streams.TRACE) + gradient(chosen, state, ".net")
    counted = 1.0 if row["mask"] else 0.0
    state.put(streams.TRACE, counted * trace)
    state[".pending"] = counted * np.array([reward - q, config["gamma"] * row["discount"]])
    state[".share"] = np.asarray(streams.share(row))
    streams.count_successor(state, row, config)
    streams.expect_successor(state, row)
    state[".updates"] = state[".updates"] + 1
    metrics = {"loss/td_error": abs(error), "loss/step_size": size, "value/q": q}
    return metrics | first, {"td_error": np.full((1, 1), error)}
