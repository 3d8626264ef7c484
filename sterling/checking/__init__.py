"""Check a user's own algorithm or environment as Sterling's own are checked by its tests.

Each check answers with a :class:`Finding`: what was looked at, whether it holds, and if not what is
wrong, where, and what to do. ``sterling check`` prints them.
"""

from sterling.checking.algorithm import check_algorithm
from sterling.checking.environment import check_environment
from sterling.checking.finding import Finding

__all__ = ["Finding", "check_algorithm", "check_environment"]
