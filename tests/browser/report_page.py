# ruff: noqa: E501
"""The page of `sterling report` in a real browser: nothing is cut or wider than the screen."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from watched_run_folders import CONFIG, RESULT, ROWS, make_run
from webdriver import Browser

from sterling.report.build_report import report_on

CPU = {
    "cpu": "Intel(R) Xeon(R) Platinum 8481C CPU",
    "cores": 208,
    "memory": 2**41,
    "devices": ["gpu"],
}
OVERFLOW = """return [...document.querySelectorAll('.wide, figure')]
    .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp(
        "a_folder_with_a_long_name_such_as_those_of_sweeps_over_settings"
    )
    versions = {"versions": {"sterling": "0.1.0", "jax": "0.10.2"}, "hardware": CPU}
    for name, settings in {"first": {}, "second": {"algorithm": "recurrent-ppo"}}.items():
        result = RESULT | {"steps_per_second": 0.25} | settings
        make_run(root / name, ROWS, result, **(CONFIG | versions | settings))
    return report_on(root, out=root / "report").path


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_report_is_not_wider_than_the_screen(browser, report, width):
    browser.resize(width)
    browser.open(report.as_uri())
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    if width > 1000:  # on a telephone, tables and pictures scroll inside their boxes
        assert browser.run(OVERFLOW) == []


def test_pictures_of_a_report_fill_its_width(browser, report):
    browser.resize(1440)
    browser.open(report.as_uri())
    wide = "return [...document.querySelectorAll('figure img')].map((x) => x.clientWidth / document.body.clientWidth)"
    shares = browser.run(wide)
    assert len(shares) >= 3
    assert min(shares) > 0.8
