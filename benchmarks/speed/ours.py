"""Trains with Sterling as a user would, in a process of its own, and says how long things took.

    python ours.py '{"algorithm": "ppo", "environment": "CartPole-v1", ...}'

The last line printed is JSON: ``points`` ([steps, seconds] at every row of metrics, over all
seeds), ``compile`` (seconds per program: tracing, lowering, compiling or fetching), ``return``.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from typing import Any

import sterling
from sterling.training.runtime.program_store import use_on_command_line

STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Clock:
    """A sink of metrics rows that notes when they came."""

    def __init__(self, seeds: int):
        self.seeds = seeds
        self.points: list[tuple[int, float]] = []
        self.rows: list[dict[str, Any]] = []

    def write(self, row: dict[str, Any]) -> None:
        done = row.get("update", row["step"])  # from a log, updates are what is counted
        self.points.append((done * self.seeds, time.perf_counter()))
        self.rows.append(row)

    def late_return(self, episodes: int = 100) -> float | None:
        """Mean of about the last ``episodes`` per seed, as Stable-Baselines3 keeps them."""
        total, count = 0.0, 0
        for row in reversed(self.rows):
            lived = zip(row.get("data/return", []), row.get("data/episodes", []), strict=True)
            for value, ended in lived:
                total, count = total + (value or 0.0) * ended, count + ended
            if count >= episodes * self.seeds:
                break
        return total / count if count else None

    def close(self) -> None:
        """Nothing to release."""


def main() -> None:
    """Run Sterling as asked, print what was measured as JSON."""
    use_on_command_line()  # nothing was replaced in this process, as in that of `sterling train`
    request = json.loads(sys.argv[1])
    if "rows" in request:
        import logs

        request["data"] = logs.written(request["rows"])
    print(json.dumps(load(request) if "load" in request else train(request)))


def load(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds from a file's name to its rows on the device."""
    from sterling.data.device_dataset import to_device

    start = time.perf_counter()
    to_device(sterling.Dataset(request["data"])).reward.block_until_ready()
    return {"load_seconds": time.perf_counter() - start, "versions": _versions()}


def train(request: dict[str, Any]) -> dict[str, Any]:
    """One training run."""
    programs = _watch_compiler()
    clock = Clock(request["options"]["seeds"])
    asked = {name: request[name] for name in ("steps", "envs", "data") if name in request}
    run = sterling.train(
        request["algorithm"],
        request.get("environment"),
        preset=False,
        evaluate_episodes=0,
        sinks=[clock],
        **asked,
        **request["options"],
        **request["fields"],
    )
    return {
        "points": clock.points,
        "steps": run.result["steps"] * clock.seeds,
        "return": clock.late_return(),
        "compile": {
            name: {stage: round(seconds, 4) for stage, seconds in stages.items()}
            for name, stages in programs.items()
        },
        "versions": _versions(),
    }


def _watch_compiler() -> dict[str, dict[str, float]]:
    """Seconds per program and stage, filled in while JAX works.

    A program's tracing time holds that of the functions it calls, so only programs that reach
    the compiler are kept, each with its own outermost trace.
    """
    import jax

    programs: dict[str, dict[str, float]] = {}
    traced: dict[str, float] = defaultdict(float)

    def listen(event: str, seconds: float, **facts: Any) -> None:
        stage, name = STAGES.get(event), str(facts.get("fun_name", "?"))
        if stage == "trace":
            traced[name] = seconds
        elif stage is not None:
            name = name.removeprefix("jit(").removesuffix(")")
            stages = programs.setdefault(name, {"trace": 0.0, "lower": 0.0, "compile": 0.0})
            stages["trace"] += traced.pop(name, 0.0)
            stages[stage] += seconds

    jax.monitoring.register_event_duration_secs_listener(listen)
    return programs


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "envpool", "mujoco")
    return {"sterling": sterling.__version__} | {name: version(name) for name in names}


if __name__ == "__main__":
    main()
