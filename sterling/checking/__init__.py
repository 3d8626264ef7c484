"""Check a user's own algorithm, environment or language tasks as Sterling's tests check its own.

Each check returns a :class:`Finding`: what was checked, whether it holds, and if not what is wrong,
where, and what to do. ``sterling check`` prints them.
"""

from sterling.checking.algorithm_review import check_algorithm
from sterling.checking.environments.environment_review import check_environment
from sterling.checking.language.task_review import check_tasks
from sterling.checking.review_findings import Finding

__all__ = ["Finding", "check_algorithm", "check_environment", "check_tasks"]
