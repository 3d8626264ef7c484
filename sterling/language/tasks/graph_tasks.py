"""Graph tasks: find a shortest path."""

from __future__ import annotations

import itertools
import re
import string
from collections import deque
from random import Random
from typing import Any

from sterling.language.task import MALFORMED, RIGHT, WRONG, Task, Verdict
from sterling.language.tasks.task_checks import Puzzle

SIZES = ((4, 4, 2), (5, 6, 2), (6, 8, 3), (8, 11, 3), (12, 18, 4))  # nodes, edges, fewest steps
PATH = re.compile(r"[a-z]([ ,>-]*[a-z])*")


class GraphPath(Puzzle):
    """A shortest path in an undirected graph: ``ab bc cd ac a to d`` -> ``acd``.

    Edges come first, then start and goal. The answer is the nodes from start to goal; blanks,
    commas, ``-`` and ``->`` between them are allowed. Any shortest path is right. Levels 0 to 4:
    4, 5, 6, 8 and 12 nodes, 4, 6, 8, 11 and 18 edges, and paths of at least 2, 2, 3, 3 and 4
    steps. Prompt 18, 24, 30, 39, 60 characters; answer 3, 3-4, 4, 4-6, 5-7.
    """

    name = "graph-path"
    levels = range(len(SIZES))

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Return a graph in which the goal can be reached, in no fewer steps than the level asks
        for."""
        count, edges, fewest = SIZES[level]
        nodes = string.ascii_lowercase[:count]
        pairs = [first + second for first in nodes for second in nodes if first < second]
        while True:
            chosen = ["".join(random.sample(pair, 2)) for pair in random.sample(pairs, edges)]
            start, goal = random.sample(nodes, 2)
            path = shortest_path(chosen, start, goal)
            if path is not None and len(path) > fewest:
                answer = {"edges": chosen, "start": start, "goal": goal, "path": path}
                return f"{' '.join(chosen)} {start} to {goal}", answer

    def judge(self, task: Task, answer: str) -> Verdict:
        """Check that the path follows edges from start to goal, in as few steps as possible."""
        if not PATH.fullmatch(answer):
            return MALFORMED
        known = task.answer
        path = [each for each in answer if each.isalpha()]
        edges = {frozenset(edge) for edge in known["edges"]}
        along = all({here, there} in edges for here, there in itertools.pairwise(path))
        ends = path[0] == known["start"] and path[-1] == known["goal"]
        return RIGHT if along and ends and len(path) == len(known["path"]) else WRONG

    def solve(self, task: Task) -> str:
        """Return the nodes of a path without separators."""
        return str(task.answer["path"])


def shortest_path(edges: list[str], start: str, goal: str) -> str | None:
    """Return the nodes of a shortest path (breadth first), or None if there is none."""
    paths, waiting = {start: start}, deque([start])
    while waiting:
        here = waiting.popleft()
        for edge in edges:
            there = edge.replace(here, "", 1)
            if len(there) == 1 and there not in paths:
                paths[there] = paths[here] + there
                waiting.append(there)
    return paths.get(goal)
