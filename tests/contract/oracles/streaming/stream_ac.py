"""Stream AC(lambda) (Elsayed 2024): one step, one update of policy and critic."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import distributions, streams
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient

POLICY, VALUE = ".nets.policy", ".nets.value"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a row; return the metrics and its TD error."""
    row = streams.row_of(batch)
    obs = streams.seen(state, row["obs"])
    continued = streams.is_continued(state, row)
    decay = config["gamma"] * config["trace_lambda"] if continued else 0.0
    reward = streams.scaled_reward(state, row, config)
    streams.count_successor(state, row, config)

    def value(x: np.ndarray) -> float:
        return float(streams.outputs(state, f"{VALUE}.net", x)[0])

    after = value(streams.seen(state, row["next_obs"]))
    target = reward + config["gamma"] * row["discount"] * after
    error = target - value(obs) if row["mask"] else 0.0

    def preference() -> float:
        log_prob, entropy = policy(state, row, obs)
        return log_prob + config["entropy_coef"] * float(np.sign(error)) * entropy

    metrics = {"loss/td_error": abs(error), "policy/entropy": policy(state, row, obs)[1]}
    slopes = {POLICY: gradient(preference, state, POLICY)}
    slopes[VALUE] = gradient(lambda: value(obs), state, VALUE)
    for part, slope in slopes.items():
        name = part.rpartition(".")[2]
        trace = f"{streams.TRACE}.{name}"
        state.put(trace, decay * state.vector(trace) + slope)
        kappa = config[f"kappa_{name}"]
        size = streams.obgd(state, part, error, config["lr"], kappa=kappa, trace=trace)
        metrics[f"loss/{name}_step_size"] = size
        state.put(trace, streams.share(row) * state.vector(trace))
    streams.expect_successor(state, row)
    return metrics, {"td_error": np.full((1, 1), error)}


def policy(state: Leaves, row: dict, obs: np.ndarray) -> tuple[float, float]:
    """Return log pi(a|s) and the entropy of pi(.|s)."""
    outputs = streams.outputs(state, f"{POLICY}.net", obs)
    if row["action"].ndim:
        mean, scale = np.split(outputs, 2)
        log_std = np.log(np.log1p(np.exp(scale)))
        log_prob = distributions.normal_log_prob(row["action"], mean, log_std)
        return float(log_prob), float(distributions.normal_entropy(log_std))
    if "allowed" in row:
        outputs = np.where(row["allowed"], outputs, -1e9)
    log_p = distributions.log_softmax(outputs)
    return float(log_p[int(row["action"])]), float(distributions.entropy_of_choices(log_p))
