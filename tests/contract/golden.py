"""Write golden.json and golden_language.json: what the oracles say of one update of every learner.

python tests/contract/golden.py     # look at the difference before committing it
"""

from __future__ import annotations

import json

import language_updates
import updates


def main() -> None:
    """Write the numbers of all updates."""
    for module, labels in (
        (updates, updates.BY_LABEL),
        (language_updates, language_updates.UPDATES),
    ):
        found = {}
        for label in labels:
            state, metrics, _ = module.expected(label)
            found[label] = updates.numbers(state, metrics)
        module.GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
