"""Code that nobody trusts, run and judged: :func:`run_code`, :func:`run_python`."""

from sterling.language.sandbox.run import Limits, Outcome, isolation, run_code, run_python

__all__ = ["Limits", "Outcome", "isolation", "run_code", "run_python"]
