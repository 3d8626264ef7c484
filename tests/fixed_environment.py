"""Set what a shell, a user or a machine may change: for the tests, and the processes they start.

That is the terminal, the locale, the time zone, the umask and the home. Importing this module sets
it; compiled programs stay in the user's own cache folder, which is noted before.
"""

import locale
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = "STERLING_TEST_PROGRAMS"  # environment variable, which xdist's workers inherit
_caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault(PROGRAMS, str(_caches / "sterling" / "test-programs"))

with suppress(ImportError):
    import readline  # noqa: F401  (it sets COLUMNS and LINES, for processes that are started)

FAMILIES = {name for name in os.environ if name.startswith(("LC_", "GIT_", "XDG_"))}
COLOURS = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "PYTHON_COLORS"}
TERMINAL = {"COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LANG", "LANGUAGE"}
for name in FAMILIES | COLOURS | TERMINAL | {"MPLCONFIGDIR", "MPLBACKEND"}:
    os.environ[name] = ""
    del os.environ[name]  # also where only C knows it, as what readline sets
os.environ |= {"LC_ALL": "C.UTF-8", "TERM": "xterm", "TZ": "UTC"}
# The user's settings of git are not read; a checkout may be another user's, as in containers.
os.environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory"}
os.environ["GIT_CONFIG_VALUE_0"] = "*"
with suppress(locale.Error):
    locale.setlocale(locale.LC_ALL, "")
time.tzset()
os.umask(0o022)
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the home of the process above them
    _home = tempfile.TemporaryDirectory(prefix="sterling-home-")  # goes with the process
    os.environ["HOME"] = _home.name
os.environ.setdefault("JAX_PLATFORMS", "cpu")
