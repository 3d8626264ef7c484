"""Run and judge untrusted code: :func:`run_code`, :func:`run_python`."""

from sterling.language.sandbox.run_untrusted import Limits, Outcome, isolation, run_code, run_python

__all__ = ["Limits", "Outcome", "isolation", "run_code", "run_python"]
