"""Checks of an algorithm that plans: acting without planning, and with an empty memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax

from sterling.algorithms.unplanned_algorithm import PRIOR, UnplannedAlgorithm, acting_name
from sterling.checking.review_findings import Check, CheckFailed
from sterling.checking.update_checks import check_actions


def planner_checks(subject: Any, label: str) -> Iterator[Check]:
    """Yield the checks of ``prior`` and of ``forgetful``, for an algorithm that has them."""
    algorithm = subject.algorithm
    if hasattr(algorithm, PRIOR):
        code = getattr(algorithm, PRIOR)
        what = f"prior returns what {acting_name(algorithm)} returns{label}"
        yield what, partial(_check_prior, subject), code
    if getattr(algorithm, "forgetful", False):
        code = getattr(algorithm, acting_name(algorithm))
        what = f"run.policy acts with an empty memory (forgetful){label}"
        yield what, partial(_check_forgetful, subject), code


def _check_prior(subject: Any) -> str:
    """Check that actions without planning are valid, and that replays and rollouts can hold what is
    returned with them."""
    unplanned = copy.copy(subject)
    unplanned.algorithm = UnplannedAlgorithm(subject.algorithm)
    check_actions(unplanned, acting_name(subject.algorithm))
    planned, own = (_forms(each.act(2, True)[0]) for each in (subject, unplanned))
    if planned != own:
        name = acting_name(subject.algorithm)
        raise CheckFailed(
            f"{name} returns {planned}, but prior returns {own}",
            f"return actions and extras of the same names, shapes and types as {name}",
        )
    return ""


def _forms(answer: Any) -> dict[str, str]:
    """Return the type and shape of each array of actions and extras, by name."""
    parts = {"action": answer[0], **answer[1]}
    leaves = jax.tree_util.tree_leaves_with_path(parts)
    return {jax.tree_util.keystr(path): jax.typeof(x).str_short() for path, x in leaves}


def _check_forgetful(subject: Any) -> str:
    if not hasattr(subject.algorithm, "memory"):
        raise CheckFailed("it has no memory", "leave out forgetful = True")
    return check_actions(subject, acting_name(subject.algorithm))
