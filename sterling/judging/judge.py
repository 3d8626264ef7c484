"""What a policy is worth, from a log of another one: one function, several methods.

| method | estimates | needs |
|---|---|---|
| fqe | the value of going on without cuts | any policy |
| model | the same, in a model learned from the log | any policy |
| is, wis | the return up to where episodes were cut | probabilities of logged actions |
| pdis, wpdis | the same | the same |
| dr, wdr | the value of going on, by a Q beyond cuts | the same, and a Q (``fqe``, or counts) |

``docs/offpolicy.md`` says which to take, and how often the intervals hold.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from sterling.data import Dataset
from sterling.data.returns import monte_carlo, survival
from sterling.judging import dynamics, importance
from sterling.judging.counts import finite
from sterling.judging.direct import evaluated
from sterling.judging.interval import spread
from sterling.judging.policies import Policy, needs_log_prob
from sterling.judging.rows import check_rows, starts
from sterling.naming import hint
from sterling.statistics import Estimate, estimate
from sterling.statistics.interval import checked_level
from sterling.types import Mistake

METHODS = ("fqe", "model", *importance.METHODS)


def judge(
    policy: Policy,
    dataset: Dataset,
    method: str = "fqe",
    *,
    gamma: float = 0.99,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Estimate:
    """The discounted return that ``policy`` would have from where the log's episodes begin.

    ``options``: for ``fqe`` fields of its Config (``updates``, ``members``, ``lr``, ``width``...);
    for ``model`` those of ``judging/dynamics.py`` and ``horizon``; for the others ``behaviour``
    ("logged", "cloned", or a policy; None: logged where the log has probabilities), ``clip`` (bound
    of cumulative ratios; none), ``interval`` ("jackknife"; see ``judging/interval.py``), and for
    ``dr`` and ``wdr`` fields of the Config of ``fqe``. The interval's ``method`` says what it
    covers, and warns where fewer than ten episodes carry the estimate. ``n`` counts episodes.

    Raises Mistake for unknown words, for levels, clips and draws out of range, for a deterministic
    policy of continuous actions with a method that needs probabilities, and for a log without rows.
    """
    if method not in METHODS:
        raise Mistake(f"no method is called {method!r}{hint(method, METHODS, _all())}")
    if not 0.0 < gamma <= 1.0:
        raise Mistake(f"gamma lies in (0, 1]; got {gamma}")
    checked_level(level)
    _check(options)
    check_rows(dataset.rows)
    if gamma == 1.0 and method not in importance.PLAIN:
        raise Mistake(f"{method} looks beyond cuts and needs gamma below 1; take wpdis")
    if method in importance.METHODS:
        needs_log_prob(policy, method)
        return importance.judged(
            policy, dataset, method, gamma=gamma, level=level, seed=seed, **options
        )
    if method == "fqe":
        found = evaluated(policy, dataset, gamma=gamma, seed=seed, **options)
        return found.estimate(level)
    known = finite(dataset, policy)
    if known is not None:
        return _by_counts(known, gamma, level, seed, options)
    return dynamics.judged(policy, dataset, gamma=gamma, level=level, seed=seed, **options)


def behaviour(
    dataset: Dataset,
    *,
    gamma: float = 0.99,
    level: float = 0.95,
    beyond: bool = False,
    seed: int = 0,
    **options: Any,
) -> Estimate:
    """What the policy that made the log is worth: the mean discounted return of its episodes.

    ``beyond``: what cut episodes would still have brought is added, gamma^T V(s_T), with V of the
    log's own states by TD (``options``: as for ``fqe``), so that the number can be put beside one
    of ``fqe``, ``model`` or ``dr``. Otherwise episodes count up to their cut, as in ``wpdis``.
    Raises Mistake for a log without rows.
    """
    check_rows(dataset.rows)
    lived = monte_carlo(dataset, gamma)[starts(dataset)].astype(np.float64)
    cut = ~dataset.ended[dataset.lengths > 0]
    method = f"over {len(lived)} episodes"
    if beyond and cut.any():
        found = evaluated(None, dataset, gamma=gamma, seed=seed, **options)
        rest = found.beyond()
        lengths = dataset.lengths[dataset.lengths > 0]
        lived = lived + np.where(cut, gamma**lengths * survival(dataset) * rest, 0.0)
        method += f", {int(cut.sum())} of them cut and carried on by a value learned from the log"
    elif cut.any():
        method += f", {int(cut.sum())} of them up to their cut"
    made = estimate(lived, level=level)
    return dataclasses.replace(made, method=f"{made.method} {method}")


def _check(options: dict[str, Any]) -> None:
    clip, draws = options.get("clip"), options.get("draws", 2)
    if clip is not None and not clip > 0.0:
        raise Mistake(f"clip bounds ratios and lies above 0; got {clip}")
    if draws < 2:
        raise Mistake(f"an interval takes 2 draws or more; got draws={draws}")


def _by_counts(
    known: Any, gamma: float, level: float, seed: int, options: dict[str, Any]
) -> Estimate:
    """The exact value in the counted model; its interval from resampled episodes."""
    draws = int(options.pop("draws", 200))
    if options:
        raise Mistake(f"a counted model has no option {next(iter(options))!r}; it has draws")
    value, n = known.solved(gamma)[1], len(known.first)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), draws)
    found = np.array([known.solved(gamma, each.astype(float))[1] for each in counts])
    what = f"counted model, {draws} resamples of the episodes"
    return spread(value, found, n=n, level=level, what=what, freedom=n - 1)


def _all() -> str:
    return f"there are {', '.join(METHODS)}"
