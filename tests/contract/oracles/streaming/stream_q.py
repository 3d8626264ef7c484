"""Stream Q(lambda) (Elsayed 2024): one step, one update."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online.dqn import epsilon
from oracles.pieces import streams
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient

NET = ".net.advantage"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a row; return the metrics and its TD error."""
    row, first = streams.row_of(batch), {"policy/epsilon": epsilon(state, config)}
    action, obs = int(row["action"]), streams.seen(state, row["obs"])
    q = streams.outputs(state, NET, obs)
    is_greedy = q[action] == q[row.get("allowed", np.ones(len(q), bool))].max()
    slope = gradient(lambda: streams.outputs(state, NET, obs)[action], state, ".net")
    decay = config["gamma"] * config["trace_lambda"] if streams.is_continued(state, row) else 0.0
    state.put(streams.TRACE, decay * state.vector(streams.TRACE) + slope)
    reward = streams.scaled_reward(state, row, config)
    streams.count_successor(state, row, config)
    after = streams.outputs(state, NET, streams.seen(state, row["next_obs"]))
    best = after[row.get("next_allowed", np.ones(len(q), bool))].max()
    error = reward + config["gamma"] * row["discount"] * best - q[action] if row["mask"] else 0.0
    size = streams.obgd(state, ".net", error, config["lr"], kappa=config["kappa"])
    kept = streams.share(row) if is_greedy else 0.0
    state.put(streams.TRACE, kept * state.vector(streams.TRACE))
    streams.expect_successor(state, row)
    state[".updates"] = state[".updates"] + 1
    metrics = {"loss/td_error": abs(error), "loss/step_size": size, "value/q": q[action]}
    return metrics | first, {"td_error": np.full((1, 1), error)}
