# ruff: noqa: E501
"""The page of ``sterling watch`` in a real browser: ``make browser``.

It needs Chromium and its driver from the operating system, which `make test` does not ask for.
"""

import json
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from watched_run_folders import CONFIG, NAUGHTY, RESULT, ROWS, make_run, row, write_rows
from webdriver import Browser

from sterling.report.watch.static_page import write_static_page
from sterling.report.watch.watch_server import WatchServer

SETTINGS = {"lr": 0.1}


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "runs"
    make_run(made / "a", ROWS, RESULT)
    make_run(made / "b", ROWS[:2], config=SETTINGS, algorithm="dqn")
    make_run(made / NAUGHTY.replace("/", "_"), [row(100, [1.0, 2.0, 3.0], **{NAUGHTY: [1.0] * 3})])
    return made


@pytest.fixture
def page(root, browser):
    with WatchServer(root, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        browser.open(server.url)
        browser.run("localStorage.clear()")
        browser.open(server.url)
        browser.wait("document.querySelectorAll('#runs tbody tr').length === 3")
        yield browser
        browser.open("about:blank")
        server.shutdown()
        thread.join()
    assert [line for line in browser.log() if "favicon" not in line] == []


NAMES = "[...document.querySelectorAll('#runs tbody tr')].map((r) => r.children[1].textContent)"


def go(browser, place):
    browser.run("location.hash = arguments[0]", place)


def test_the_table_sorts_and_filters(page):
    page.run(
        "[...document.querySelectorAll('#runs th button')].find(b => b.textContent === 'run').click()"
    )
    assert page.run(f"return {NAMES}")[:2] == ["a", "b"]
    page.run(
        "[...document.querySelectorAll('#runs th button')].find(b => b.textContent === 'run').click()"
    )
    assert page.run(f"return {NAMES}")[-1] == "a"
    page.run(
        "const f = document.getElementById('filter'); f.value = 'dqn stopped'; f.dispatchEvent(new Event('input'))"
    )
    assert page.run(f"return {NAMES}") == ["b"]


def test_ticked_runs_are_drawn_with_intervals_and_axes(page):
    page.wait("document.querySelectorAll('#chart g path.mean').length === 3")
    bands = "[...document.querySelectorAll('#chart path.band')].filter((p) => p.getAttribute('d')).length"
    assert page.wait(f"{bands} >= 1")
    words = page.run(
        "return [...document.querySelectorAll('#chart text.title')].map((t) => t.textContent)"
    )
    assert words == ["environment steps per seed", "return"]
    page.run("document.getElementById('none').click()")
    page.wait("document.querySelectorAll('#chart g').length === 0")
    assert "tick runs" in page.run("return document.getElementById('chart').textContent")
    page.run("document.querySelector('#runs tbody input').click()")
    page.wait("document.querySelectorAll('#chart g').length === 1")


def test_the_mean_lies_where_the_axis_says(page):
    page.run("document.getElementById('none').click()")
    page.run(
        f"const at = {NAMES}.indexOf('a'); document.querySelectorAll('#runs tbody input')[at].click()"
    )
    page.wait("document.querySelectorAll('#chart g').length === 1")
    found = page.run("""
        const ys = {}, xs = {};
        for (const t of document.querySelectorAll('#chart text')) {
          const value = Number(t.textContent);
          if (t.getAttribute('text-anchor') === 'end') ys[value] = Number(t.getAttribute('y')) - 4;
          else if (Number.isFinite(value)) xs[value] = Number(t.getAttribute('x'));
        }
        const d = document.querySelector('#chart path.mean').getAttribute('d');
        return {ys, xs, last: d.split('L').pop().split(' ').map(Number)};""")
    ys = {float(value): y for value, y in found["ys"].items()}
    xs = {float(value): x for value, x in found["xs"].items()}
    (low, at_low), *_, (high, at_high) = sorted(ys.items())
    assert found["last"][1] == pytest.approx(
        at_low + (33.0 - low) / (high - low) * (at_high - at_low), abs=0.2
    )
    assert found["last"][0] == pytest.approx(xs[300.0], abs=0.2)


def shown(page, name):
    """Return the numbers, words and panel of a run's drawing."""
    return page.run(
        """
        const group = document.querySelector(`g[data-run="${arguments[0]}"]`);
        const panel = group.closest('.panel'), final = group.querySelector('.final');
        const line = [...panel.querySelectorAll('.legend li')].find((li) => li.textContent.startsWith(arguments[0]));
        return {title: panel.querySelector('h2').textContent, runs: panel.querySelectorAll('g[data-run]').length,
          final: final && final.getAttribute('d'), words: line.textContent};""",
        name,
    )


def test_each_environment_has_a_panel_of_its_own(page, root):
    make_run(root / "c", [row(100, [-1e6, -2e6, -3e6])], environment="Pendulum-v1")
    page.wait("document.querySelectorAll('#runs tbody tr').length === 4")
    page.run("document.getElementById('all').click()")
    page.wait("document.querySelectorAll('#chart .panel').length === 2")
    assert (shown(page, "a")["title"], shown(page, "a")["runs"]) == ("CartPole-v1", 3)
    assert (shown(page, "c")["title"], shown(page, "c")["runs"]) == ("Pendulum-v1", 1)
    page.run("document.getElementById('none').click()")


def test_the_final_evaluation_is_drawn_and_told_beside_the_end_of_the_line(page):
    page.wait("document.querySelectorAll('#chart g path.mean').length === 3")
    found = shown(page, "a")
    assert found["final"]
    assert "final evaluation 60.00 [40.00, 80.00]; line ends with 33" in found["words"]
    assert "at 300 steps; 3 seeds" in found["words"]
    assert shown(page, "b")["final"] is None
    assert "final" not in shown(page, "b")["words"]


def test_slow_runs_have_a_speed(page, root):
    last = {"step": 0, "update": 4, "time/updates_per_second": 0.055}
    make_run(root / "slow", [last], steps=0, updates=4)
    page.wait("document.getElementById('runs').textContent.includes('0.055 updates/s')")


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_nothing_is_wider_than_the_screen(page, root, width):
    long = "a_run_with_a_name_as_long_as_those_of_a_sweep_over_many_settings_and_seeds-lr=0.0003-gamma=0.99"
    make_run(
        root / long, ROWS, RESULT, environment="a_module_with_a_long_name:make_an_environment_v3"
    )
    page.resize(width)
    page.wait("document.querySelectorAll('#runs tbody tr').length === 4")
    page.run("document.getElementById('all').click()")
    for place, ready in [
        ("#/", "#chart g path.mean"),
        (f"#/run/{long}", "#log tbody tr"),
        ("#/compare", "#differences tbody tr"),
    ]:
        go(page, place)
        page.wait("document.querySelector(arguments[0])", ready)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), place
    go(page, "#/")
    table = (
        "document.querySelector('.wide').scrollWidth <= document.querySelector('.wide').clientWidth"
    )
    assert page.wait(table), "the table of runs is cut"
    page.resize(1280)


def test_a_run_that_is_written_goes_on_without_a_reload_or_a_jump(page, root):
    line = f"[...document.querySelectorAll('#runs tbody tr')][{NAMES}.indexOf('b')]"
    page.wait(f"{line}.textContent.includes('200 / 400')")
    page.wait("document.querySelectorAll('.legend li').length === 3")  # the first drawing is there
    before = page.run(
        "window.mark = 1; return document.getElementById('runs').getBoundingClientRect().top"
    )
    write_rows(root / "b", ROWS, ending='{"step": 4')
    page.wait(f"{line}.textContent.includes('300 / 400')")
    path = "document.querySelector('g[data-run=b] path.mean').getAttribute('d')"
    page.wait(f"{path}.split('L').length === 2")  # the new point joins the earlier one
    assert page.run(
        "return [window.mark, document.getElementById('runs').getBoundingClientRect().top]"
    ) == [1, before]


def test_words_of_runs_are_never_html(page):
    options = "[...document.getElementById('metric').options].map((o) => o.value)"
    page.wait(f"{options}.includes(arguments[0])", NAUGHTY)
    page.run(
        "const m = document.getElementById('metric'); m.value = arguments[0]; m.dispatchEvent(new Event('change'))",
        NAUGHTY,
    )
    page.wait(
        "document.querySelector('#chart text.title') && [...document.querySelectorAll('#chart text.title')].pop().textContent === arguments[0]",
        NAUGHTY,
    )
    go(
        page,
        "#/run/" + page.run("return encodeURIComponent(arguments[0])", NAUGHTY.replace("/", "_")),
    )
    page.wait("document.querySelectorAll('#log tbody tr').length === 1")
    assert page.run("return document.querySelectorAll('img[src=x]').length") == 0


def test_the_page_of_a_run_and_the_comparison(page):
    go(page, "#/run/a")
    page.wait("document.querySelectorAll('#log tbody tr').length === 3")
    assert "60.00 [40.00, 80.00]" in page.run("return document.querySelector('.facts').textContent")
    assert (
        page.run("return [...document.querySelectorAll('#settings tr')].map((r) => r.textContent)")[
            0
        ]
        == "lr0.001"
    )
    go(page, "#/compare")
    page.wait("document.querySelectorAll('#differences tbody tr').length > 0")
    words = page.run("return document.getElementById('differences').textContent")
    assert "lr0.0010.1" in words
    assert CONFIG["environment"] not in words  # equal settings are left out
    page.run("document.getElementById('verdict').click()")
    assert "CartPole-v1" in page.wait(
        "document.getElementById('words') && document.getElementById('words').textContent"
    )


def test_both_themes_are_readable(page):
    contrast = """
        const style = getComputedStyle(document.body);
        const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).map(Number); return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; };
        return [light(style.color), light(style.backgroundColor)];"""
    first = page.run(contrast)
    page.run("document.getElementById('theme').click()")
    second = page.run(contrast)
    assert abs(first[0] - first[1]) > 0.6
    assert abs(second[0] - second[1]) > 0.6
    assert (first[0] < first[1]) != (second[0] < second[1])


def test_static_files_show_the_same_without_a_server(browser, root, tmp_path):
    made = write_static_page(root, tmp_path / "page")
    browser.open(made.as_uri())
    browser.wait("document.querySelectorAll('#chart g path.mean').length === 3")
    assert "60.00 [40.00, 80.00]" in browser.run(
        "return document.getElementById('runs').textContent"
    )
    go(browser, "#/run/a")
    browser.wait("document.querySelectorAll('#log tbody tr').length === 3")
    go(browser, "#/compare")
    browser.wait("document.querySelectorAll('#differences tbody tr').length > 0")
    browser.run("document.getElementById('verdict').click()")
    assert browser.wait(
        "document.getElementById('words') && document.getElementById('words').textContent"
    )
    assert browser.log() == []
    assert json.dumps(str(root.parent)) not in (made.parent / "data" / "runs.js").read_text()
