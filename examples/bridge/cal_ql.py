"""Cal-QL (Nakamoto 2023, arXiv:2303.05479): CQL whose values are never pushed below what the log
itself earned, so that fine-tuning does not begin with unlearning.

python examples/bridge/cal_ql.py DATA UPDATES STEPS
"""

import sys

import sterling


def train(data, updates, steps, **options):
    """The penalty may be another one from the first step on."""
    budget = {"updates": updates, "steps": steps, "share": 0.5}
    return sterling.train("cql", data=data, calibrated=True, **(budget | options))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    run = train(sys.argv[1], *map(int, sys.argv[2:]), seeds=3, online={"penalty": 1.0})
    print(run.result["switch"])
