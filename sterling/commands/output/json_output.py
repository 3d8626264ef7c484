"""What a command found, as one JSON object on standard output (``--json``)."""

from __future__ import annotations

import json
from typing import Any


def print_json(found: Any) -> None:
    """Print ``found.to_json()``: strict JSON, without NaN."""
    print(json.dumps(found.to_json(), indent=1, allow_nan=False))
