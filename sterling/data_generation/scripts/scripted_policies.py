"""Choose the hand-written policy for an environment: OGBench's, BabyAI's or Meta-World's."""

from __future__ import annotations

from sterling.data.dataset import Dataset
from sterling.data_generation.dataset_order import DatasetOrder, Say
from sterling.data_generation.scripts import (
    babyai_bot,
    metaworld_policies,
    ogbench_collections,
    ogbench_oracles,
)
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake


def collect_scripted(order: DatasetOrder, say: Say) -> Dataset:
    """Collect a scripted dataset; raise Mistake for environments without a script."""
    if order.env_options:
        given = ", ".join(order.env_options)
        raise Mistake(f"Scripted datasets take no --env options; got {given}. Leave them out.")
    if ogbench_collections.knows(order.environment):
        return ogbench_oracles.collect(order, say)
    if babyai_bot.knows(order.environment):
        return babyai_bot.collect(order, say)
    if metaworld_policies.knows(order.environment):
        return metaworld_policies.collect(order, say)
    known = [
        *ogbench_collections.COLLECTION_NAMES,
        *babyai_bot.level_names(),
        *metaworld_policies.task_names(),
    ]
    there = "use a collection of OGBench, a level of BabyAI or a task of Meta-World"
    near = did_you_mean(order.environment, known, there)
    raise Mistake(f"There is no script for {order.environment!r}{near}")
