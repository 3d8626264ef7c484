"""Estimate a policy's return from a dataset of another policy: one function, several methods.

| method | estimates | needs |
|---|---|---|
| fqe | the value without time limits | any policy |
| model | the same, in a model learned from the dataset | any policy |
| is, wis | the return up to where episodes were truncated | probabilities of logged actions |
| pdis, wpdis | the same | the same |
| dr, wdr | the value without time limits, by a Q | the same, and a Q (``fqe``, or counts) |

``docs/offpolicy.md`` says which to use, and how often the intervals cover the true value.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from sterling.data import Dataset
from sterling.data.episode_returns import discount_products, monte_carlo_returns
from sterling.evaluation.off_policy import importance_estimates, learned_model
from sterling.evaluation.off_policy.episode_intervals import replicate_interval
from sterling.evaluation.off_policy.fqe.fqe_value import fit_q
from sterling.evaluation.off_policy.log_rows import check_not_empty, first_rows
from sterling.evaluation.off_policy.policy_probabilities import Policy, check_log_prob
from sterling.evaluation.off_policy.tabular_model import count_model
from sterling.lookup.name_suggestions import did_you_mean
from sterling.statistics import Estimate, estimate
from sterling.statistics.intervals.estimates import check_confidence_level
from sterling.types import Mistake

METHODS = ("fqe", "model", *importance_estimates.METHODS)


def estimate_policy_value(
    policy: Policy,
    dataset: Dataset,
    method: str = "fqe",
    *,
    gamma: float = 0.99,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Estimate:
    """Estimate the discounted return of ``policy`` from the start states of the dataset's episodes.

    ``options``: for ``fqe`` fields of its Config (``updates``, ``members``, ``lr``, ``width``...);
    for ``model`` those of ``evaluation/off_policy/learned_model.py`` and ``horizon``; for the
    others ``behaviour`` ("logged", "cloned", or a policy; None: logged if the dataset has
    probabilities), ``clip`` (bound of cumulative ratios; none), ``interval`` ("jackknife"; see
    ``evaluation/off_policy/episode_intervals.py``), and for ``dr`` and ``wdr`` fields of the Config
    of ``fqe``. The result's ``method`` says what the interval covers, and warns if fewer than ten
    effective episodes determine the estimate. ``n`` counts episodes.

    Raises Mistake for unknown words, for levels, clips and draws out of range, for a deterministic
    policy of continuous actions with a method that needs probabilities, and for an empty dataset.
    """
    if method not in METHODS:
        raise Mistake(
            f"no method is called {method!r}{did_you_mean(method, METHODS, _list_methods())}"
        )
    if not 0.0 < gamma <= 1.0:
        raise Mistake(f"gamma is {gamma}; it must be above 0 and at most 1")
    check_confidence_level(level)
    _check_options(options)
    check_not_empty(dataset.rows)
    if gamma == 1.0 and method not in importance_estimates.WITHOUT_MODEL:
        raise Mistake(
            f"{method} estimates the value beyond truncations and needs gamma below 1; use wpdis"
        )
    if method in importance_estimates.METHODS:
        check_log_prob(policy, method)
        return importance_estimates.estimate_value(
            policy, dataset, method, gamma=gamma, level=level, seed=seed, **options
        )
    if method == "fqe":
        found = fit_q(policy, dataset, gamma=gamma, seed=seed, **options)
        return found.estimate(level)
    known = count_model(dataset, policy)
    if known is not None:
        return _estimate_by_counts(known, gamma, level, seed, options)
    return learned_model.estimate_value(
        policy, dataset, gamma=gamma, level=level, seed=seed, **options
    )


def behaviour(
    dataset: Dataset,
    *,
    gamma: float = 0.99,
    level: float = 0.95,
    beyond: bool = False,
    seed: int = 0,
    **options: Any,
) -> Estimate:
    """Return the behaviour policy's value: the mean discounted return of the dataset's episodes.

    ``beyond``: add what truncated episodes would still have earned, gamma^T V(s_T), with V of the
    dataset's own states by TD (``options``: as for ``fqe``), so that the number is comparable with
    ``fqe``, ``model`` or ``dr``. Otherwise episodes count up to their truncation, as in ``wpdis``.
    Raises Mistake for an empty dataset.
    """
    check_not_empty(dataset.rows)
    lived = monte_carlo_returns(dataset, gamma)[first_rows(dataset)].astype(np.float64)
    cut = ~dataset.ended[dataset.lengths > 0]
    method = f"over {len(lived)} episodes"
    if beyond and cut.any():
        found = fit_q(None, dataset, gamma=gamma, seed=seed, **options)
        rest = found.final_values()
        lengths = dataset.lengths[dataset.lengths > 0]
        lived = lived + np.where(cut, gamma**lengths * discount_products(dataset) * rest, 0.0)
        method += f", {int(cut.sum())} of them truncated and continued by a learned value"
    elif cut.any():
        method += f", {int(cut.sum())} of them up to their truncation"
    made = estimate(lived, level=level)
    return dataclasses.replace(made, method=f"{made.method} {method}")


def _check_options(options: dict[str, Any]) -> None:
    clip, draws = options.get("clip"), options.get("draws", 2)
    if clip is not None and not clip > 0.0:
        raise Mistake(f"clip is {clip}; it bounds ratios and must be above 0")
    if draws < 2:
        raise Mistake(f"draws is {draws}; an interval needs at least 2")


def _estimate_by_counts(
    known: Any, gamma: float, level: float, seed: int, options: dict[str, Any]
) -> Estimate:
    """Return the exact value in the counted model, with an interval from resampled episodes."""
    draws = int(options.pop("draws", 200))
    if options:
        raise Mistake(
            f"in a finite environment method model has no option {next(iter(options))!r}; "
            "remove it (it takes only draws)"
        )
    value, n = known.solve(gamma)[1], len(known.first)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), draws)
    found = np.array([known.solve(gamma, each.astype(float))[1] for each in counts])
    what = f"counted model, {draws} resamples of the episodes"
    return replicate_interval(value, found, n=n, level=level, what=what, freedom=n - 1)


def _list_methods() -> str:
    return f"use {', '.join(METHODS)}"
