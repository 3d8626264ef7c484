"""Convert logged actions, sampled actions and log-probabilities between file and agent units.

``extra/log_prob`` is the log-density of the action (for discrete actions, its log-probability) in
the units in which actions are stored. Where the environment may clip or round an action,
``extra/chosen`` holds the action before that, in the same units, and ``log_prob`` belongs to it.

An agent acts in [-1, 1] where a box has bounds, so densities change with the units: the density of
one number in [-2, 2] is twice as large in an agent's units.

Logs from an earlier Sterling have ``extra/sample`` instead: the action before clipping, in an
agent's units; their ``log_prob`` is in an agent's units too.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sterling.data import space_json
from sterling.data.episode_columns import Arrays
from sterling.data.space_json import Space
from sterling.types import Action, Record

LOG_PROB_COLUMN, CHOSEN_COLUMN, LEGACY_CHOSEN_COLUMN = (
    "extra/log_prob",
    "extra/chosen",
    "extra/sample",
)
ACTION_EXTRAS = (LOG_PROB_COLUMN, CHOSEN_COLUMN, LEGACY_CHOSEN_COLUMN)


def to_agent_units(space: Space, arrays: Arrays) -> Arrays:
    """Return the columns with actions, sampled actions and log-densities in an agent's units."""
    made = dict(arrays)
    for name, part in space_json.column_spaces("action", space).items():
        made[name] = space_json.to_agent_action(part, arrays[name])
    if _holds_actions(LEGACY_CHOSEN_COLUMN, arrays):
        made[CHOSEN_COLUMN] = made.pop(LEGACY_CHOSEN_COLUMN)
        return made
    if _holds_actions(CHOSEN_COLUMN, arrays):
        made[CHOSEN_COLUMN] = space_json.to_agent_action(space, made[CHOSEN_COLUMN])
    if LOG_PROB_COLUMN in made:
        made[LOG_PROB_COLUMN] = (made[LOG_PROB_COLUMN] + log_density_offset(space)).astype(
            np.float32
        )
    return made


def to_stored_columns(
    space: Space, chosen: np.ndarray | None, log_prob: Float[np.ndarray, "row"]
) -> Arrays:
    """Return columns in stored units from an agent's log-densities and its action before
    clipping; ``chosen`` is None where the environment does not clip."""
    made = {LOG_PROB_COLUMN: (log_prob - log_density_offset(space)).astype(np.float32)}
    if chosen is not None:
        middle, half = space_json.action_units(space)
        made[CHOSEN_COLUMN] = np.asarray(middle + half * chosen, np.float32)
    return made


def log_density_offset(space: Space) -> float:
    """Return how much larger a log-density is in an agent's units than in stored units: the sum
    of log((high - low) / 2) over all bounded boxes of an action space."""
    boxes = [
        part
        for part in space_json.column_spaces("action", space).values()
        if space_json.is_rescaled(part)
    ]
    return float(sum(np.log(space_json.action_units(box)[1]).sum() for box in boxes))


def chosen_action(record: Record) -> Action:
    """Return the actions before clipping, in an agent's units; the logged actions where none are
    recorded."""
    found = record.extras.get(CHOSEN_COLUMN.removeprefix("extra/"))
    like = getattr(record.action, "shape", None)  # an action that is a tree has no shape
    return record.action if found is None or found.shape != like else found


def _holds_actions(name: str, arrays: Arrays) -> bool:
    """Whether a column holds actions; a foreign file may use the name for something else."""
    return name in arrays and "action" in arrays and arrays[name].shape == arrays["action"].shape
