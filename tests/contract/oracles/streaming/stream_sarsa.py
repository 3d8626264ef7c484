"""Stream SARSA(lambda) (Elsayed 2024): the update of a step is made when the next action is
known."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online.dqn import epsilon
from oracles.pieces import streams
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient

NET, WAITING = ".net.advantage", ".optimiser.trace"
TRACE = f"{WAITING}.trace"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Finish the update of the step before, then begin that of this row; return the metrics and
    the TD error of the step before."""
    row, first = streams.row_of(batch), {"policy/epsilon": epsilon(state, config)}
    action, obs = int(row["action"]), streams.seen(state, row["obs"])
    continued = streams.is_continued(state, row)

    def chosen() -> float:
        return float(streams.outputs(state, NET, obs)[action])

    known, discount, share = (
        float(state[f"{WAITING}.{x}"]) for x in ("error", "discount", "share")
    )
    error = known + discount * chosen() if continued else 0.0
    size = streams.obgd(state, ".net", error, config["lr"], kappa=config["kappa"], trace=TRACE)
    reward, q = streams.scaled_reward(state, row, config), chosen()
    decay = config["gamma"] * config["trace_lambda"] * share if continued else 0.0
    trace = decay * state.vector(TRACE) + gradient(chosen, state, ".net")
    counted = 1.0 if row["mask"] else 0.0
    state.put(TRACE, counted * trace)
    state[f"{WAITING}.error"] = np.asarray(counted * (reward - q))
    state[f"{WAITING}.discount"] = np.asarray(counted * config["gamma"] * row["discount"])
    state[f"{WAITING}.share"] = np.asarray(streams.share(row))
    streams.count_successor(state, row, config)
    streams.expect_successor(state, row)
    state[".updates"] = state[".updates"] + 1
    metrics = {"loss/td_error": abs(error), "loss/step_size": size, "value/q": q}
    return metrics | first, {"td_error": np.full((1, 1), error)}
