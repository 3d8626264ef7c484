"""A user's code in a worker process keeps the place where it is written."""

import traceback
from pathlib import Path

import cloudpickle

from sterling.system import pickling


def test_an_error_in_code_carried_by_value_names_its_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def make():\n    def inner():\n        return 1 / 0\n    return inner\n")
    script: dict = {"__name__": "__main__"}
    exec(compile(file.read_text(), str(file), "exec"), script)
    make = cloudpickle.loads(pickling.dumps(script["make"]))
    try:
        make()()
    except ZeroDivisionError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
    assert (Path(frame.filename).name, frame.lineno) == ("mine.py", 3)


def test_equal_code_is_pickled_to_equal_bytes():
    assert pickling.dumps(lambda: 1) != pickling.dumps(lambda: 2)
    one = lambda: 1  # noqa: E731
    assert pickling.dumps(one) == pickling.dumps(one)
