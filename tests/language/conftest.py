"""Workers of judges that misbehave."""

from pathlib import Path

import pytest

from sterling.language.adapters.answer_worker import Worker

HERE = Path(__file__).parent


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Start workers whose judge is ``obedient``, and end them after the test."""
    monkeypatch.syspath_prepend(str(HERE))  # judges of tests can be imported by other processes
    folder = tmp_path / "processes"
    folder.mkdir()
    workers = []

    def started(processes, limit=60.0, target="judges:obedient", **settings):
        workers.append(Worker(target, str(folder), limit, processes=processes, **settings))
        return workers[-1]

    started.folder = folder
    yield started
    for worker in workers:
        worker.close()
