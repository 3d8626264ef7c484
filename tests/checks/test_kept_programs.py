"""Compiled programs that are kept between runs of the tests: damaged files do not matter."""

import os

import kept_programs
from kept_programs import KeptPrograms


def test_kept_program_is_read_back_and_overwritten(tmp_path):
    programs = KeptPrograms(tmp_path / "a" / "b")
    assert programs.get("one") is None
    programs.put("one", b"code")
    assert programs.get("one") == b"code"
    programs.put("one", b"other")
    assert KeptPrograms(tmp_path / "a" / "b").get("one") == b"other"
    assert [each.name for each in (tmp_path / "a" / "b").iterdir()] == ["one"]


def test_damaged_program_is_removed_and_written_anew(tmp_path):
    programs = KeptPrograms(tmp_path)
    for damage in (lambda text: text[:-1], lambda text: b"", lambda text: text[:-1] + b"x"):
        programs.put("one", b"code")
        (tmp_path / "one").write_bytes(damage((tmp_path / "one").read_bytes()))
        assert programs.get("one") is None
        assert not (tmp_path / "one").exists()


def test_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("no folder")
    programs = KeptPrograms(tmp_path / "file")
    programs.put("one", b"code")
    assert programs.get("one") is None
    kept_programs.remove_oldest(tmp_path / "file")


def test_oldest_programs_are_removed(tmp_path):
    programs = KeptPrograms(tmp_path)
    for age, name in enumerate("abc"):
        programs.put(name, b"x" * 68)  # 100 bytes with the checksum
        os.utime(tmp_path / name, (age, age))
    assert programs.get("a") is not None  # used now
    kept_programs.remove_oldest(tmp_path, 200)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "c"]
