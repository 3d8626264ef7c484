"""What the shell and the user have set is nothing that a test could see: conftest.py sets it."""

import locale
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings


def test_processes_that_tests_start_inherit_what_is_set_for_all():
    said = "echo ${COLUMNS-none} ${LINES-none} ${NO_COLOR-none} $TERM $LC_ALL $TZ $(umask) $HOME"
    found = subprocess.run(["sh", "-c", said], capture_output=True, text=True, check=True).stdout
    *first, home = found.split()
    assert first == ["none", "none", "none", "xterm", "C.UTF-8", "UTC", "0022"]
    assert Path(home).parent == Path(tempfile.gettempdir())  # not the user's


def test_this_process_has_the_same_clock_and_encoding(tmp_path):
    assert time.strftime("%H", time.localtime(0)) == "00"
    assert locale.localeconv()["decimal_point"] == "."
    with (tmp_path / "made").open("w") as made:
        assert made.encoding.lower().replace("-", "") == "utf8"
    assert os.stat(tmp_path / "made").st_mode & 0o777 == 0o644


def test_examples_are_drawn_the_same_way_every_time():
    assert settings().derandomize
    assert settings().database is None
    assert settings().deadline is None
    assert not settings.get_profile("random").derandomize


@pytest.mark.parametrize(("free", "warns"), [(3 << 30, True), (11 << 30, False)])
def test_a_disk_that_is_nearly_full_is_one_line(free, warns, request):
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))
    said = conftest.disk_warning(free)
    assert ("has 3.0 GB free; tests may need 10 GB" in said) == warns
    assert "\n" not in said
