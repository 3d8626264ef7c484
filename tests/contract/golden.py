"""Write golden.json: what the oracles say of one update of every algorithm.

python tests/contract/golden.py     # look at the difference before committing it
"""

from __future__ import annotations

import json

import updates


def main() -> None:
    """Write the numbers of all updates."""
    found = {}
    for label in updates.BY_LABEL:
        state, metrics, _ = updates.expected(label)
        found[label] = updates.numbers(state, metrics)
    updates.GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
