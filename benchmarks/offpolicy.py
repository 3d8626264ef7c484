"""Do off-policy estimates find the value, and do their intervals hold it?

    python benchmarks/offpolicy.py [--logs 200] [--page] [--out benchmarks/results/offpolicy.json]
    python benchmarks/offpolicy.py --only small --logs 300 [--cells FOLDER]

A random finite world (16 states, 4 actions), whose values are known exactly. The judged policy is
the best one with 40 % random actions; logs are of the best one with 60 % (near) and of the uniform
one (far). Writes a table beside the JSON. A check in a continuous world, CartPole, follows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import offpolicy_small

import sterling
from sterling.data import Dataset
from sterling.data.episode_columns import Block
from sterling.data_generation.tabular_logs import make_log
from sterling.envs.native import classic_control
from sterling.envs.native.tabular_mdp import make_tabular
from sterling.evaluation import (
    METHODS,
    TabularPolicy,
    TrainedPolicy,
    estimate_policy_value,
    rank_correlation,
    regret,
)
from sterling.evaluation.off_policy.importance_estimates import WITHOUT_MODEL
from sterling.types import Spec

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

GAMMA, LIMIT = 0.95, 50
SIZES = (25, 100, 400)
BEHAVIOURS = {"near": 0.6, "far": 1.0}  # chance of a random action
JUDGED = 0.4
TABLE: dict[str, Any] = {"depth": 0, "lr": 0.1, "updates": 1000, "batch": 128, "tau": 0.05}
FQE_SIZE = 100  # episodes: networks take longer
CARTPOLE_GAMMA, CUT, LOGGED = 0.98, 100, 200
NETWORKS: dict[str, dict[str, Any]] = {
    "fqe": {"updates": 5000, "width": 64},
    "model": {"updates": 3000, "width": 64},
    "wpdis": {},
    "wdr": {"updates": 3000, "width": 64},
}
TRAINED, ACTS = (8_192, 16_384, 32_768, 65_536), 1  # steps of the policies; which made the log
ABOUT = """# Off-policy evaluation: do estimates find the value, do intervals hold it?

`python benchmarks/offpolicy.py`, {seconds} s.

{origin}
## Where values are known exactly

A random finite world (16 states, 4 actions), gamma 0.95, episodes cut after 50 steps; {logs} logs
of each size (the first commit's rule of intervals; the rule since is below, under small logs).
The judged policy is the best one with 40 % random actions, worth {truth:.3f}; *near*
logs are of the best one with 60 %, *far* ones of the uniform policy. `is` to `wpdis` are put beside
the return up to the cut, the others beside that without cuts. **holds**: share of 95 % intervals
that hold the truth (standard error {error:.1%} at 95 %). **trusted**: share of the estimates that
carry no warning of a small effective sample; **of trusted**: how many of those intervals hold.

"""
CARTPOLE = """
## CartPole-v1

Networks and learned models instead of tables, gamma {gamma}: policies of four trainings by PPO,
judged from {logged} episodes (cut after {cut} steps) that the one of {behaviour} lived. Truth: 512
episodes in the world, of {cut} steps for `wpdis`, of 1000 for the others. That policy leaves the
track soon after step {cut}, which no log shows: what `fqe`, `model` and `wdr` say of the time
beyond the cuts is too good, and no interval over episodes knows it.

"""


def tries(logs: int) -> Iterator[dict[str, Any]]:
    """One row for every method, distance of the policies and size of the log."""
    mdp = make_tabular("random-16x4-0")
    best = mdp.optimal(GAMMA)
    judged = mdp.greedy(best, JUDGED)
    policy = TabularPolicy.from_table(judged)
    for name, chance in BEHAVIOURS.items():
        acting = mdp.greedy(best, chance)
        for episodes in SIZES:
            made = [make_log(mdp, acting, episodes, LIMIT, seed) for seed in range(logs)]
            for method in METHODS:
                if method == "fqe" and episodes != FQE_SIZE:
                    continue
                truth = mdp.expected_return(
                    judged, GAMMA, LIMIT if method in WITHOUT_MODEL else None
                )
                fields = TABLE if method == "fqe" else {}
                found = [
                    estimate_policy_value(policy, data, method, gamma=GAMMA, seed=seed, **fields)
                    for seed, data in enumerate(made)
                ]
                yield {"log": name, "episodes": episodes, "method": method} | told(found, truth)


def told(found: list[Any], truth: float) -> dict[str, Any]:
    """How estimates of one number came out; those without a warning also apart."""
    value = np.array([one.value for one in found])
    low, high = np.array([(one.low, one.high) for one in found], float).T
    holds = (low <= truth) & (truth <= high)
    trusted = ~np.isnan(low)
    return {
        "truth": truth,
        "bias": float(value.mean() - truth),
        "rmse": float(np.sqrt(np.mean((value - truth) ** 2))),
        "width": float(np.nanmedian(high - low)) if trusted.any() else None,
        "holds": float(holds.mean()),
        "trusted": float(trusted.mean()),
        "holds_if_trusted": float(holds[trusted].mean()) if trusted.any() else None,
        "logs": len(found),
    }


def cartpole() -> dict[str, Any]:
    """Policies of trainings of different lengths, judged from a log of one of them."""
    task, _ = classic_control.make("CartPole-v1")
    spec = Spec(task.obs, task.action)
    policies = {}
    for steps in TRAINED:
        run = sterling.train("ppo", "CartPole-v1", steps=steps, evaluate_episodes=0)
        policies[f"ppo, {steps:,} steps"] = TrainedPolicy.from_run(run, spec)
    lived = {name: episodes(task, policy, 512, 1000) for name, policy in policies.items()}
    truths = {
        name: [float(value(part, CARTPOLE_GAMMA, steps).mean()) for steps in (1000, CUT)]
        for name, part in lived.items()
    }
    data = dataset(task, episodes(task, list(policies.values())[ACTS], LOGGED, CUT, seed=1))
    rows = []
    for method, fields in NETWORKS.items():
        for name, policy in policies.items():
            found = estimate_policy_value(policy, data, method, gamma=CARTPOLE_GAMMA, **fields)
            truth = truths[name][method in WITHOUT_MODEL]
            said = {**found.to_json(), "method": method, "said": found.method}
            rows.append({"policy": name, "truth": truth, **said})
    return {"rows": rows, "behaviour": list(policies)[ACTS], "chosen": chosen_by(rows)}


def chosen_by(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How well each method's estimates order the policies."""
    made = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        pair = [(r["value"], r["truth"]) for r in rows if r["method"] == method]
        found, true = (np.array(side) for side in zip(*pair, strict=True))
        made[method] = {
            "rank_correlation": rank_correlation(found, true),
            "regret@1": regret(found, true),
        }
    return made


@eqx.filter_jit
def episodes(task: Any, policy: Any, count: int, steps: int, seed: int = 0) -> dict[str, Any]:
    """``count`` episodes of ``steps`` at most, ``(time, episode, ...)``."""

    def step(carry: Any, key: Any) -> tuple[Any, dict[str, Any]]:
        state, obs, alive = carry
        act, world = jax.random.split(key)
        action = policy.sample(obs, act)
        log_prob = policy.log_prob(obs, action)
        state, following, reward, ended, _ = jax.vmap(task.step)(
            state, action, jax.random.split(world, count)
        )
        row = {"obs": obs, "action": action, "reward": reward, "ended": ended, "alive": alive}
        return (state, following, alive & ~ended), {**row, "log_prob": log_prob, "next": following}

    begin, go = jax.random.split(jax.random.key(seed))
    state, obs = jax.vmap(task.reset)(jax.random.split(begin, count))
    start = (state, obs, jnp.ones(count, bool))
    return jax.lax.scan(step, start, jax.random.split(go, steps))[1]


def value(lived: dict[str, Any], gamma: float, steps: int) -> np.ndarray:
    """The discounted return of every episode's first ``steps``."""
    reward = np.asarray(lived["reward"] * lived["alive"], np.float64)[:steps]
    return (reward * gamma ** np.arange(len(reward))[:, None]).sum(0)


def dataset(task: Any, lived: dict[str, Any]) -> Dataset:
    """Episodes as a log."""
    host = {name: np.asarray(x).swapaxes(0, 1) for name, x in lived.items()}
    alive = host["alive"]
    lengths = alive.sum(1)
    obs = [
        np.concatenate([seen[:n], after[n - 1 : n]])
        for seen, after, n in zip(host["obs"], host["next"], lengths, strict=True)
    ]
    arrays = {
        "obs": np.concatenate(obs),
        "action": host["action"][alive].astype(np.int64),
        "reward": host["reward"][alive],
        "discount": 1 - host["ended"][alive].astype(np.float32),
        "extra/log_prob": host["log_prob"][alive],
    }
    block = Block(arrays, lengths, np.zeros(len(lengths), np.int32))
    return Dataset.from_block(block, task.obs, task.action)


def main() -> None:
    """Simulate, judge, write the numbers and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--only", choices=("tables", "small"), help="this part alone (all)")
    parser.add_argument("--cells", type=Path, default=Path("runs/offpolicy-small"))
    out = ROOT / "benchmarks" / "results" / "offpolicy.json"
    parser.add_argument("--out", type=Path, default=out)
    chosen = parser.parse_args()
    if not chosen.page:
        begun, seeds = evidence.begin(), f"one for each of {chosen.logs} logs"
        if chosen.only != "small":
            evidence.write_part(chosen.out, "tables", tables(chosen.logs), begun, seeds)
        if chosen.only != "tables":
            rows = offpolicy_small.small(chosen.logs, chosen.cells)
            part = {"rows": rows, "early": offpolicy_small.early(12)}
            evidence.write_part(chosen.out, "small logs", part, begun, seeds)
    text = page(json.loads(chosen.out.read_text())["parts"], chosen.out)
    chosen.out.with_suffix(".md").write_text(text)
    print(text)


def tables(logs: int) -> dict[str, Any]:
    """Measure the random world and CartPole."""
    start = time.monotonic()
    made = {"rows": list(tries(logs)), "cartpole": cartpole()}
    return made | {"seconds": round(time.monotonic() - start, 1)}


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """One line of the first table."""
    apart = row["holds_if_trusted"]
    numbers = (offpolicy_small.number(row[name]) for name in ("bias", "rmse", "width", "holds"))
    last = ("" if apart is None else f"{apart:.3f}", f"{row['trusted']:.2f}")
    return (row["log"], str(row["episodes"]), row["method"], *numbers, *last)


def page(parts: dict[str, Any], path: Path) -> str:
    """All tables."""
    result = parts["tables"]
    first, cart = result["rows"][0], result["cartpole"]
    error = (0.95 * 0.05 / first["logs"]) ** 0.5
    about = {"logs": first["logs"], "seconds": result["seconds"]}
    about["origin"] = "\n".join(evidence.lines(path)) + "\n"
    text = ABOUT.format(**about, truth=first["truth"], error=error)
    heads = ("log", "episodes", "method", "bias", "RMSE", "width", "holds", "of trusted", "trusted")
    text += offpolicy_small.table(heads, [cells(row) for row in result["rows"]])
    given = {"gamma": CARTPOLE_GAMMA, "logged": LOGGED, "cut": CUT, "behaviour": cart["behaviour"]}
    text += CARTPOLE.format(**given)
    rows = [
        (
            *(row["method"], row["policy"], f"{row['truth']:.2f}", f"{row['value']:.2f}"),
            "none" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}",
            "no" if row["low"] is None or "cannot be trusted" in row["said"] else "yes",
        )
        for row in cart["rows"]
    ]
    text += offpolicy_small.table(
        ("method", "policy", "truth", "estimate", "95 % interval", "trusted"), rows
    )
    rows = [
        (method, *(f"{number:.2f}" for number in said.values()))
        for method, said in cart["chosen"].items()
    ]
    text += "\n" + offpolicy_small.table(("method", "rank correlation", "regret@1"), rows)
    return text + (offpolicy_small.page(parts["small logs"]) if "small logs" in parts else "")


if __name__ == "__main__":
    main()
