"""Rows of a file of texts that are held out: which they are, and the loss on them."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.report.runs.read_runs import read_results
from sterling.training.api import settings_from_arguments as settings_of
from sterling.training.language.build_language_run import run_builder
from sterling.training.language.held_out_texts import held_out_rows
from sterling.training.language.resolve_language_settings import resolve_language_settings
from sterling.types import Mistake

SMALL = {"model": "nano", "batch": 2, "held_out": 0.3}


def texts(number):
    if number % 3 == 0:
        return {"text": f"plain {number}"}
    return {"prompt": f"what is {number}", "response": f"it is {number}" * (1 + number % 4)}


def pairs(number):
    return {"prompt": f"what is {number}", "chosen": f"{number}", "rejected": "no" * (number + 1)}


def write(folder, records):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return str(path)


def begun(algorithm, path, **asked):
    given = {"algorithm": algorithm, "texts": path} | SMALL | asked
    return resolve_language_settings(settings_of(given))


def rows_of(record):
    """The tokens of every row, without padding: a tuple for each, twice if it is there twice."""
    ids = np.concatenate([record.obs[:, :1], record.action], 1)
    ends = [np.flatnonzero(mask)[-1] + 2 for mask in np.asarray(record.mask)]
    return [tuple(row[:end]) for row, end in zip(ids.tolist(), ends, strict=True)]


def learned_rows(settings):
    """The rows that the run's own source draws from."""
    source = run_builder(settings)(jnp.zeros(1, jnp.int32), None, False).source
    return rows_of(source.texts if settings.algorithm == "sft" else source.all_pairs())


LEARNERS = [("sft", texts), ("dpo", pairs), ("reward", pairs)]


@pytest.mark.parametrize(("algorithm", "record"), LEARNERS)
def test_held_out_rows_are_never_learned_and_equal_rows_stay_together(tmp_path, algorithm, record):
    records = [record(number) for number in range(20)] * 2
    settings = begun(algorithm, write(tmp_path, records), updates=2, seeds=[7])
    learned, held = learned_rows(settings), rows_of(held_out_rows(settings))
    assert not set(learned) & set(held)
    assert len(learned) + len(held) == len(records) * (1 if algorithm == "sft" else 2)
    assert all(rows.count(row) == 2 for rows in (learned, held) for row in rows)
    whole = begun(algorithm, write(tmp_path, records), updates=2, held_out=0.0)
    assert sorted(learned + held) == sorted(learned_rows(whole))


def test_first_lines_say_how_many_rows_are_held_out_and_passes_count_the_others(tmp_path, capsys):
    settings = begun("sft", write(tmp_path, [texts(number) for number in range(20)]))
    held = len(rows_of(held_out_rows(settings)))
    assert 0 < held < 20
    assert settings.updates == -(-3 * (20 - held) // 2)  # three passes over what is learned
    _, line, alone = capsys.readouterr().err.splitlines()[:3]
    assert line.startswith(f"texts: 20 in texts.jsonl; {held} of 20 rows are held out; ")
    assert "pass over the others 3" in line
    assert alone.endswith("held_out/loss is that of rows never trained on")


@pytest.mark.parametrize("algorithm", [name for name, _ in LEARNERS])
def test_share_that_leaves_nothing_to_measure_or_to_learn_is_refused(tmp_path, algorithm):
    records = [(texts if algorithm == "sft" else pairs)(4)]
    for count, share, said in (
        (1, 1e-9, r"held_out=1e-09 holds out none of the 1 rows of texts\.jsonl.*a larger share"),
        (3, 1 - 1e-9, "holds out all of the 3 rows .*a smaller share"),
        (1, 1.0, "held_out must be at least 0 and below 1; got 1.0"),
        (1, -0.1, "held_out must be at least 0 and below 1; got -0.1"),
    ):
        with pytest.raises(Mistake, match=said) as caught:
            begun(algorithm, write(tmp_path, records * count), held_out=share)
        assert "\n" not in str(caught.value)


def log_of(folder):
    return [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "record"), LEARNERS)
def test_loss_on_held_out_rows_is_logged_at_evaluations_and_resumes(tmp_path, algorithm, record):
    path, whole, halves = write(tmp_path, map(record, range(20))), tmp_path / "a", tmp_path / "b"
    common = {"texts": path, "seeds": 2, "evaluate_every": 2, "log_every": 1, **SMALL}
    run = sterling.train(algorithm, updates=5, out=whole, **common)
    sterling.train(algorithm, updates=2, out=halves, **common)
    sterling.resume(halves, updates=5)
    rows = log_of(whole)
    assert [row["update"] for row in rows if "held_out/loss" in row] == [2, 4, 5]
    for one, other in zip(rows, log_of(halves), strict=True):
        assert {k: v for k, v in one.items() if k.startswith("held_out/")} == {
            k: v for k, v in other.items() if k.startswith("held_out/")
        }
    for name, found in run.result["final"].items():
        assert name.startswith("held_out/")
        assert found["per_seed"] == rows[-1][name]
    (read,), _ = read_results([whole], "held_out/loss")
    assert (read.better, read.scores.tolist()) == (-1, rows[-1]["held_out/loss"])
    assert repr(run).count("held_out/loss") == 1


@pytest.mark.slow
def test_run_on_texts_alone_keeps_and_stops_by_the_lowest_held_out_loss(tmp_path):
    """With these large steps the loss falls and then rises; the seeds differ."""
    seen = []

    class Watch:
        def on_evaluation(self, event):
            seen.append(event.scores["loss"])

    path = write(tmp_path, map(texts, range(20)))
    how = {"texts": path, "seeds": 2, "evaluate_every": 2, "lr": 0.05, **SMALL}
    run = sterling.train("sft", updates=60, patience=2, keep="best", callbacks=[Watch()], **how)
    losses, best = np.array(seen), run.result["best"]
    means = losses.mean(1)
    assert run.result["stopped"]["by"] == "patience"
    assert means.argmin() == len(means) - 3
    assert best["chosen_loss"] == best["final"]["held_out/loss"]["per_seed"] == [*losses.min(0)]
    assert best["progress"] == [2 + 2 * int(at) for at in losses.argmin(0)]
    assert run.result["final"]["held_out/loss"]["per_seed"] == [*losses[-1]]


@pytest.mark.parametrize(("option", "held_out"), [({"patience": 2}, 0.3), ({"keep": "best"}, 0.0)])
def test_steering_of_a_run_on_texts_alone_needs_held_out_rows(tmp_path, option, held_out):
    asked = {"held_out": held_out, "updates": 4, **option}
    path = write(tmp_path, map(texts, range(20)))
    if held_out:
        assert begun("sft", path, **asked).holds_out_texts
        return
    with pytest.raises(Mistake, match=r"keep need evaluations, .* Give held_out=0.1"):
        begun("sft", path, **asked)
