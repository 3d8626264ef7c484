"""Chat templates that take all memory, all time, or fail in ways of their own: one line each."""

import threading
import time

import pytest

from sterling.language import chat_template
from sterling.language.chat_template import PLAIN_TEMPLATE, ChatTemplate
from sterling.language.scene import Message
from sterling.types import Mistake

MEMORY, LATE = "memory", "it takes longer than 1 seconds"
LONG = r"it makes [\d,]+ characters; at most 4,194,304 are allowed"
BOMBS = {
    "{{ 'a' * 10**10 }}": MEMORY,
    "{{ messages[0].content * 10**10 }}": MEMORY,
    "{{ '%10000000000d' % 1 }}": MEMORY,
    "{{ '{:10000000000}'.format(1) }}": MEMORY,
    "{{ 'a'.center(10**10) }}": MEMORY,
    "{{ [1, 2] * 10**9 }}": MEMORY,
    "{% set n = namespace(x='ab') %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}"
    "{{ n.x }}": f"{MEMORY}|{LATE}",
    "{{ messages[0].content * 10**7 }}": LONG,
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": LATE,
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ j }}{% endfor %}{% endfor %}": LATE,
    "{{ 7 ** (9 ** 9) }}": LATE,
    "{{ range(200000) | list }}": "OverflowError: Range too big",
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}": "RecursionError",
    "{{ 1 / 0 }}": "ZeroDivisionError: division by zero",
    "{{ x.y.z }}": "'x' is undefined",
    "{{ strftime_now(5) }}": "TypeError",
    "{{ messages[0].content.encode('nothing') }}": "LookupError: unknown encoding: nothing",
    "{{ raise_exception('a\nb') }}": r"\(a b\)",
    "{{ raise_exception('x' * 10**6) }}": "x{200}",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}": "cannot be read",
    "{{ " + "-" * 9000 + "1 }}": "cannot be read",
    "{% if 1 %}" * 300 + "{% endif %}" * 300: "cannot be read",
    "{{ '" + "a" * 100 + "' | indent(10**10) }}{{ 'a\nb' | indent(10**10) }}": MEMORY,
    "{{ messages | tojson(indent=10**10) }}": MEMORY,
}


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[:40])
def test_chat_template_bomb_is_stopped_in_one_line(source, monkeypatch):
    """Also where it is spent before any conversation: Jinja computes constants as it reads."""
    monkeypatch.setattr(chat_template, "SECONDS", 1.0 if LATE in BOMBS[source] else 60.0)
    begun = time.perf_counter()
    with pytest.raises(Mistake, match=BOMBS[source]) as told:
        ChatTemplate(source, {}, "it").render([Message("user", "hello")], reply=True)
    assert str(told.value).startswith("it ")
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400
    assert time.perf_counter() - begun < 60.0


def test_chat_template_renders_after_a_template_bomb(monkeypatch):
    good = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", {"bos_token": "<s>"}, "good")
    for bomb in ("{{ 7 ** (9 ** 9) }}", "{{ 'a' * 10**10 }}"):
        with monkeypatch.context() as brief:
            brief.setattr(chat_template, "SECONDS", 1.0)
            with pytest.raises(Mistake):
                ChatTemplate(bomb, {}, "it").render([], reply=True)
        assert good.render([Message("user", "\ud800é")], reply=True) == "<s>\ud800é"


def test_chat_template_time_limit_holds_in_every_thread(monkeypatch):
    """Signals, which only reach a main thread, are not what it is made of."""
    monkeypatch.setattr(chat_template, "SECONDS", 1.0)
    said = []

    def render():
        try:
            ChatTemplate("{{ 7 ** (9 ** 9) }}", {}, "it")
        except Mistake as mistake:
            said.append(str(mistake))

    threads = [threading.Thread(target=render) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    assert said == [f"it cannot be read ({LATE}); use the model's own template"] * 2


def test_built_in_chat_template_renders_without_a_process(monkeypatch):
    monkeypatch.setattr(chat_template, "_worker", None)
    said = ChatTemplate(PLAIN_TEMPLATE, {"eos_token": "</s>"}, "ours").render(
        [Message("user", "a")], reply=True
    )
    assert said == "user:\na\nassistant:\n"


def test_chat_template_rendering_is_cached(monkeypatch):
    asked = []
    real = ChatTemplate._ask
    monkeypatch.setattr(
        ChatTemplate, "_ask", lambda self, known: asked.append(known) or real(self, known)
    )
    for source, count in (("{{ messages[0].content }}", 2), ("{{ strftime_now('%Y') }}", 5)):
        template = ChatTemplate(source, {}, "it")
        asked.clear()
        for word in ("a", "b", "a", "a", "b"):
            said = template.render([Message("user", word)], reply=True)
            assert said == word or count == 5
        assert len(asked) == count
