"""The cases are a module beside the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def written_logs(tmp_path_factory):
    """Where logs of probe worlds lie, written when they are first asked for."""
    return tmp_path_factory.mktemp("logs")
