"""Hand-written policies: whose script plays in an environment."""

from __future__ import annotations

from sterling.data.dataset import Dataset
from sterling.factory import babyai, metaworld, ogbench
from sterling.factory.agents import Say
from sterling.factory.make import Order
from sterling.naming import hint
from sterling.types import Mistake


def collect(order: Order, say: Say) -> Dataset:
    """A scripted dataset; raises Mistake for environments without a script."""
    if order.env_options:
        given = ", ".join(order.env_options)
        raise Mistake(f"scripted collections take no options of environments; got {given}")
    if ogbench.knows(order.environment):
        return ogbench.collect(order, say)
    if babyai.knows(order.environment):
        return babyai.collect(order, say)
    if metaworld.knows(order.environment):
        return metaworld.collect(order, say)
    known = [*ogbench.NAMES, *babyai.names(), *metaworld.names()]
    there = "there are OGBench's collections, BabyAI's worlds and Meta-World's tasks"
    near = hint(order.environment, known, there)
    raise Mistake(f"there is no script for {order.environment!r}{near}")
