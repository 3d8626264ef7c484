"""Runs that stopped early: what reports say of them."""

from __future__ import annotations

from typing import Any


def early_stop_text(config: dict[str, Any], result: dict[str, Any]) -> str:
    """Return where and why a run stopped early, from its config.json and result.json; "" if it did
    not."""
    found = result.get("stopped")
    if not found:
        return ""
    unit = "steps" if result.get("steps") else "updates"
    planned = int(config.get(unit) or 0)
    of = f" of {planned:,}" if planned and not config.get("phases") else ""
    reached = int(result.get(unit) or 0)
    return f"stopped early at {reached:,}{of} {unit}, by {found['by']}: {found['reason']}"
