"""How actions were chosen: what is recorded beside them, in the file's units and in an agent's.

``extra/log_prob`` is the log-density of the action (of a choice: its log-probability) in the units
in which actions are stored. Where the world may have done something else than what was chosen, by
clipping or rounding it, ``extra/chosen`` is that choice in the same units, and the density is its.

An agent acts in [-1, 1] where a box has bounds, so a density changes with the actions: of one
number in [-2, 2] it is twice as large for an agent.

Logs that Sterling made before have ``extra/sample`` instead: the choice in an agent's units, as
their density is too.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sterling.data import spaces
from sterling.data.columns import Arrays
from sterling.data.spaces import Space
from sterling.types import Action, Record

LOG_PROB, CHOSEN, BEFORE = "extra/log_prob", "extra/chosen", "extra/sample"
OF_ACTIONS = (LOG_PROB, CHOSEN, BEFORE)


def as_agent_acts(space: Space, arrays: Arrays) -> Arrays:
    """The columns, those of actions and of how they were chosen as an agent would have them."""
    made = dict(arrays)
    for name, part in spaces.parts("action", space).items():
        made[name] = spaces.as_agent_acts(part, arrays[name])
    if _is_choice(BEFORE, arrays):
        made[CHOSEN] = made.pop(BEFORE)
        return made
    if _is_choice(CHOSEN, arrays):
        made[CHOSEN] = spaces.as_agent_acts(space, made[CHOSEN])
    if LOG_PROB in made:
        made[LOG_PROB] = (made[LOG_PROB] + log_scale(space)).astype(np.float32)
    return made


def as_stored(
    space: Space, chosen: np.ndarray | None, log_prob: Float[np.ndarray, "row"]
) -> Arrays:
    """The inverse: columns of an agent's log-densities, and of what it chose for a box where the
    world may clip it (None elsewhere), which is not."""
    made = {LOG_PROB: (log_prob - log_scale(space)).astype(np.float32)}
    if chosen is not None:
        middle, half = spaces.units(space)
        made[CHOSEN] = np.asarray(middle + half * chosen, np.float32)
    return made


def log_scale(space: Space) -> float:
    """By how much a log-density is larger in an agent's units than as it is stored: the sum of
    log((high - low) / 2) over all bounded boxes of an action space."""
    boxes = [part for part in spaces.parts("action", space).values() if spaces.is_rescaled(part)]
    return float(sum(np.log(spaces.units(box)[1]).sum() for box in boxes))


def of(record: Record) -> Action:
    """What was chosen, in an agent's units: the actions, where nothing else is known."""
    found = record.extras.get(CHOSEN.removeprefix("extra/"))
    like = getattr(record.action, "shape", None)  # none of an action of parts
    return record.action if found is None or found.shape != like else found


def _is_choice(name: str, arrays: Arrays) -> bool:
    """Whether a column holds actions; anybody's file may call something else so."""
    return name in arrays and "action" in arrays and arrays[name].shape == arrays["action"].shape
