"""Measure what one action of an exported policy costs, and how large the files are.

    python benchmarks/deploy/run.py                # everything, a few minutes on two cores
    python benchmarks/deploy/run.py mlp            # one part: mlp, gru, server
    python benchmarks/deploy/run.py --page         # the page from the committed results

Writes benchmarks/results/deploy.json: microseconds per action for one observation at a time, in C
(gcc or clang, -O3, called from C), ONNX Runtime (one thread), NumPy and Sterling's own
``run.policy`` or player; and the requests per second that `sterling serve` answers on the same
machine, its clients included. Weights are almost those of the first day: speed does not depend on
them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sterling
from sterling.deploy.export_policy import export_policy
from sterling.deploy.formats.c_runner import compiler
from sterling.deploy.policy_numpy import Policy
from sterling.deploy.serving.policy_server import PolicyServer
from sterling.deploy.serving.policy_sessions import PolicySessions

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "deploy.json"
REPEATS, CALLS = 501, 10  # blocks are so short that other work spares some of them
REQUESTS, ROUNDS = 1_000, 3
CLIENTS = (1, 8, 32)
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("ppo", {"width": 64, "depth": 2}),
    "gru": ("recurrent-ppo", {"width": 64}),
}
MAIN = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "policy.c"
int main(int count, char **words) {
  long calls = count > 2 ? atol(words[1]) : 1, blocks = count > 2 ? atol(words[2]) : 1;
  float obs[3] = {0.1f, -0.2f, 0.3f}, action[1] = {0.0f}, sum = 0.0f;
  STATE
  struct timespec a, b;
  for (long block = 0; block < blocks; block++) {
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (long t = 0; t < calls; t++) {
    obs[0] = 0.001f * (float)(t % 1000);
    CALL;
    sum += action[0];
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("%.9g\\n", ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec))
         / (double)calls / 1e3);
  }
  fprintf(stderr, "%g\\n", (double)sum);
  return 0;
}
"""


def trained(part: str) -> sterling.TrainedRun:
    """A run on Pendulum-v1: 3 numbers observed, 1 number acted."""
    algorithm, fields = RUNS[part]
    return sterling.train(algorithm, "Pendulum-v1", steps=4_096, seeds=1, preset=False,
                          evaluate_episodes=0, **fields)  # fmt: skip


def measure_policy(part: str) -> dict[str, Any]:
    """Microseconds per action by runtime, and sizes of files in bytes."""
    run = trained(part)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = {suffix: export_policy(run, place / f"policy{suffix}")
                for suffix in (".npz", ".safetensors", ".onnx", ".c")}  # fmt: skip
        microseconds = {
            "C": measure_c(place, part == "gru"),
            "ONNX Runtime": timed(onnx_call(place / "policy.onnx")),
            "NumPy": timed(numpy_call(place / "policy.npz")),
            "Sterling": timed(own_call(run, part == "gru")),
        }
        sizes = {suffix: each.path.stat().st_size for suffix, each in made.items()}
        sizes["C, compiled"] = compiled_size(place)
    parameters = parameter_count(run)
    differences = {suffix: each.agreement.largest for suffix, each in made.items()}
    return {"microseconds": microseconds, "bytes": sizes, "parameters": parameters,
            "differences": differences}  # fmt: skip


def parameter_count(run: sterling.TrainedRun) -> int:
    """The number of constants in the exported graph."""
    from sterling.deploy.graph.policy_trace import trace_policy

    return trace_policy(run).parameters


def timed(call: Callable[[], Any]) -> dict[str, float]:
    """The median and the extremes of repeated measurements, microseconds per call."""
    for _ in range(200):
        call()
    found = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - begun) / CALLS * 1e6)
    return spread(found)


def spread(found: list[float]) -> dict[str, float]:
    """Lowest, highest, median, and the tenth part of all that is lowest."""
    tenth = float(np.quantile(found, 0.1))
    made = {"median": statistics.median(found), "low": min(found), "high": max(found)}
    return {**made, "tenth": tenth}


def measure_c(folder: Path, has_memory: bool) -> dict[str, float]:
    """Compile the C file with a loop around it, and read the times that it prints."""
    command = compiler()
    if command is None:
        sys.exit("benchmarks/deploy needs a C compiler: install gcc or clang")
    state = "policy_state state; policy_reset(&state);" if has_memory else ""
    call = "policy(obs, -1.0f, &state, action)" if has_memory else "policy(obs, action)"
    (folder / "main.c").write_text(MAIN.replace("STATE", state).replace("CALL", call))
    words = [command, "-std=c99", "-O3", "main.c", "-o", "main", "-lm"]
    subprocess.run(words, cwd=folder, check=True)
    words = ["./main", str(CALLS), str(REPEATS)]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return spread([float(word) for word in done.stdout.split()])


def compiled_size(folder: Path) -> int:
    """Bytes of code and constants of the compiled C file."""
    command = str(compiler())
    subprocess.run([command, "-std=c99", "-Os", "-c", "policy.c"], cwd=folder, check=True)
    done = subprocess.run(["size", "policy.o"], cwd=folder, check=True, capture_output=True,
                          text=True)  # fmt: skip
    return int(done.stdout.splitlines()[1].split()[3])


def onnx_call(path: Path) -> Callable[[], Any]:
    """One call of ONNX Runtime with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    kinds = {"tensor(float)": np.float32, "tensor(bool)": bool, "tensor(int32)": np.int32}
    given = {
        each.name: np.zeros([1, *each.shape[1:]], kinds[each.type]) for each in session.get_inputs()
    }
    return lambda: session.run(None, given)


def numpy_call(path: Path) -> Callable[[], Any]:
    """One call of the NumPy loader."""
    policy, obs = Policy(path), np.zeros(3, np.float32)
    return lambda: policy(obs, -1.0)


def own_call(run: sterling.TrainedRun, has_memory: bool) -> Callable[[], Any]:
    """One call of ``run.policy``, or of a player and its ``notice``."""
    obs = np.zeros(3, np.float32)
    if not has_memory:
        return lambda: run.policy(obs)
    player = run.player()

    def step() -> None:
        player(obs)
        player.notice(-1.0, False)

    return step


def measure_server() -> dict[str, Any]:
    """Requests per second by number of clients, each waiting for its answer."""
    sessions = PolicySessions(trained("mlp"))
    sessions.warm_up()
    return asyncio.run(_measured(PolicyServer(sessions)))


async def _measured(server: PolicyServer) -> dict[str, Any]:
    ready: asyncio.Queue[int] = asyncio.Queue()
    task = asyncio.create_task(server.serve("127.0.0.1", 0, ready.put_nowait))
    port, made = await ready.get(), {}
    for clients in CLIENTS:
        each, found = REQUESTS // clients, []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            await asyncio.gather(*[_client(port, each) for _ in range(clients)])
            found.append(clients * each / (time.perf_counter() - begun))
        made[str(clients)] = spread(found)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {"requests per second": made}


async def _client(port: int, requests: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"obs": [0.1, -0.2, 0.3]}'
    whole = b"POST /act HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(requests):
        writer.write(whole)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(size)
    writer.close()


PARTS: dict[str, Callable[[], Any]] = {
    "mlp": lambda: measure_policy("mlp"),
    "gru": lambda: measure_policy("gru"),
    "server": measure_server,
}
NAMES = {"mlp": "two layers of 64", "gru": "a GRU of 64"}


def page() -> list[str]:
    """Return the page of the committed results."""
    parts = json.loads(RESULTS.read_text())["parts"]
    lines = ["# Exported policies: time and size", "", *evidence.lines(RESULTS)]
    lines += [
        f"Microseconds for one action from one observation of Pendulum-v1: {REPEATS} blocks "
        f"of {CALLS} calls; a tenth of the blocks took less than this [median]. Other work kept "
        "all cores busy, so the first number is nearer to that of an idle machine; medians of "
        "Sterling's own calls, which pass through a thread, show the wait for a core. "
        "C is called from C; ONNX Runtime and NumPy "
        "from Python. "
        'Sterling: `run.policy`, for the GRU a player\'s call and its `notice`.', "",
        "| policy | parameters | C | ONNX Runtime | NumPy | Sterling |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for part, name in NAMES.items():
        found = parts[part]
        cells = " | ".join(cell(each) for each in found["microseconds"].values())
        lines.append(f"| {name} | {found['parameters']:,} | {cells} |")
    lines += ["", "Sizes of the files in bytes; compiled: code and constants with `-Os`.", ""]
    kinds = list(parts["mlp"]["bytes"])
    lines += [f"| policy | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for part, name in NAMES.items():
        sizes = " | ".join(f"{size:,}" for size in parts[part]["bytes"].values())
        lines.append(f"| {name} | {sizes} |")
    lines += [
        "",
        "`sterling serve` with the policy of two layers: requests per second, when so many "
        "clients each wait for their answers on the same machine, beside other work: the median "
        f"of {ROUNDS} rounds of {REQUESTS:,} requests [lowest, highest].",
        "",
    ]
    lines += ["| clients | requests per second |", "|---|---|"]
    for clients, rate in parts["server"]["requests per second"].items():
        spans = f"{rate['median']:,.0f} [{rate['low']:,.0f}, {rate['high']:,.0f}]"
        lines.append(f"| {clients} | {spans} |")
    return lines


def cell(found: dict[str, float]) -> str:
    """Return the first decile and the median."""
    return f"{found['tenth']:.1f} [{found['median']:.1f}]"


if __name__ == "__main__":
    evidence.measure_parts(RESULTS, PARTS, dict.fromkeys(PARTS, 1), page)
