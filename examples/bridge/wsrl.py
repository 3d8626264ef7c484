"""WSRL (Zhou 2024, arXiv:2412.07762): Cal-QL learns from the log; at the switch the log and the
penalty are left behind, and a short warm-up lived by the pretrained policy takes their place.

python examples/bridge/wsrl.py DATA UPDATES STEPS
"""

import sys

import sterling


def train(data, updates, steps, warmup=5_000, **options):
    """``share=0``: online batches hold nothing of the log; ``penalty=0``: plain SAC then."""
    budget = {"updates": updates, "steps": steps, "share": 0.0, "warmup": warmup}
    budget["online"] = {"penalty": 0.0}
    return sterling.train("cql", data=data, calibrated=True, **(budget | options))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    print(train(sys.argv[1], *map(int, sys.argv[2:]), seeds=3).result["switch"])
