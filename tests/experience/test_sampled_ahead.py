"""Answers that are sampled while older ones are learned from equal delayed ones."""

import json
import os
import signal
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import batches, tell
from jax.experimental import io_callback
from safetensors.numpy import load_file
from scripted_agent import ScriptedAgent, ScriptedSampler

import sterling
from sterling.experience.batch_draws import collect_rest
from sterling.experience.language.conversation_rollout import Conversation, ConversationHost
from sterling.experience.language.delayed_batches import DelayedSource
from sterling.experience.language.task_curriculum import KINDS
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.offline.recorded_batches import BatchRecorder
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language.build_language_run import run_builder
from sterling.training.loop import Run, iterate
from sterling.training.runtime.signals import Interrupt
from sterling.types import Generations, Mistake, Signals

VOICE = ChatSettings(Tokenizer.characters("abc"), limit=2, context=16)
FEED = Generations(1, 1).feeds[0]


class Speaker(ScriptedAgent):
    """Says a word that its ask's chance chooses, and its seed's shift."""

    def __init__(self, shifts=(0,), version=0):
        self.shifts, self.seeds, self.version = shifts, len(shifts), version

    def answer(self, ask, seed, row):
        return VOICE.tokenizer.encode("abc"[(ask.chance + self.shifts[seed]) % 3])


class Letter(BaseScene):
    """Rewards some texts, less at higher levels. Verdicts come late, each after another time."""

    def __init__(self, world, level):
        super().__init__()
        self.world, self.level = world, level
        self.ask(0, Message("user", "ab"[level % 2]))

    def hear(self, seat, text):
        self.world.heard += 1
        if self.world.heard == self.world.interrupts:
            names = [thread.name for thread in threading.enumerate()]
            self.world.learning = any(name.startswith("learn") for name in names)
            os.kill(os.getpid(), signal.SIGINT)
        pause = self.world.pause * (self.world.heard % 3)
        self.call(lambda: time.sleep(pause), lambda _: self.decide(text))

    def decide(self, text):
        self.judge(0, sum(map(ord, text)) % 7 / (1.0 + self.level), "late")


class Letters:
    name, seats, turns, levels = "letters", 1, 1, range(3)
    last = 10**9  # questions that there are

    def __init__(self, pause=0.0, interrupts=0):
        self.pause, self.interrupts, self.heard, self.begun = pause, interrupts, 0, 0
        self.learning = False  # while it interrupts

    def begin(self, seed, level):
        self.begun += 1
        if self.begun > self.last:
            raise RuntimeError("the questions have gone")
        return Letter(self, level)


def delayed(world, kind="uniform", *, ahead, rounds=1, lag=1, seeds=1):
    """A source of conversations that are learned from some draws later."""
    source = Conversation.create(
        ConversationHost(world, VOICE, Generations(4, 2, rounds=rounds), (0, 1, 2)), seeds, kind
    )
    _, draws = source.collect(Speaker((0,) * seeds), keys(99, seeds))
    blank = jax.tree.map(jnp.zeros_like, draws.record)
    return DelayedSource.create(source, lag, blank, ahead=ahead)


def after_iteration(source, number):
    """The source after an iteration of this number, and the batch that was learned from."""
    begun, draws = source.collect(Speaker(), keys(number))
    assert begun.has_rest == (source.ahead and number >= len(source.waiting))
    record = batches(draws, keys(number), FEED)
    advantage = jnp.abs(record.extras["score"] - 0.2)
    return tell(collect_rest(begun), draws, record, {"advantage": advantage}, FEED), record


def keys(number, seeds=1):
    return jax.random.split(jax.random.key(number), seeds)


@pytest.mark.parametrize(("kind", "lag"), [(x, 3 if x == "advantage" else 1) for x in KINDS])
def test_batches_and_curricula_sampled_ahead_equal_delayed_ones(kind, lag):
    """Of a curriculum, too, that counts answers at once, and of one that hears of the learner."""
    how = {"rounds": 2, "lag": lag}
    plain, ahead = (delayed(Letters(), kind, ahead=ahead, **how) for ahead in (False, True))
    for number in range(5):
        plain, expected = after_iteration(plain, number)
        ahead, found = after_iteration(ahead, number)
        assert_equal((plain.source, plain.waiting, expected), (ahead.source, ahead.waiting, found))
    assert (np.asarray(ahead.source.curriculum.count) > 0).any() == (kind != "uniform")


class Learner(eqx.Module):
    """Waits in its second and later iterations, while it learns, until an answer is asked for."""

    meeting: threading.Barrier = eqx.field(static=True)

    def at_iteration(self, iteration):
        return self

    def samplers(self, shapes):
        return Speaker().samplers(shapes)

    def learn(self, draws, keys, iteration):
        met = io_callback(self.meet, jax.ShapeDtypeStruct((), bool), iteration)
        return self, (draws.feedback, {}), {"met": met[None]}

    def meet(self, iteration):
        return np.bool_(iteration < 1 or met(self.meeting))


def met(meeting):
    """Whether the other side comes to the meeting, too."""
    try:
        meeting.wait(timeout=20.0)
    except threading.BrokenBarrierError:
        return False
    return True


class Meeting(Letters):
    """Waits at the first question of each later iteration, until the learner learns."""

    def __init__(self, meeting):
        super().__init__()
        self.meeting, self.met = meeting, []

    def begin(self, seed, level):
        if self.begun >= 16 and self.begun % 8 == 0:  # after the blank batch and the first one
            self.met.append(met(self.meeting))
        return super().begin(seed, level)


@pytest.mark.parametrize("within", ["nothing", "mix", "dump"])
def test_sampling_ahead_and_learning_go_on_at_the_same_time(within, tmp_path):
    """Neither goes on before the other has begun."""
    meeting, seeds = threading.Barrier(2), jnp.arange(1, dtype=jnp.int32)
    world, zero = Meeting(meeting), jnp.zeros((), jnp.int32)
    source = delayed(world, ahead=True)
    source = Mix((source,)) if within == "mix" else source
    source = BatchRecorder(source, zero, tmp_path) if within == "dump" else source
    run = Run(Learner(meeting), source, seeds, zero)
    for _ in range(3):
        run, metrics = iterate(run)
        assert np.asarray(metrics["met"]).all()
    assert world.met == [True, True]


class Student(eqx.Module):
    """Answers by its weights, which every batch changes; each seed has one weight."""

    weights: jax.Array
    updates: jax.Array

    def at_iteration(self, iteration):
        return self

    def samplers(self, shapes):
        speaker = Speaker(self.weights.tolist(), int(self.updates))
        return [ScriptedSampler(speaker, seed) for seed in range(speaker.seeds)]

    def learn(self, draws, keys, iteration):
        record = batches(draws, keys, FEED)
        read = jnp.sum(jnp.where(record.mask, record.action, 0), 2) @ jnp.arange(1, 9)
        found = Student((self.weights * 3 + read) % 1000, self.updates + 1)
        signals = {"advantage": jnp.abs(record.extras["score"] - 0.2)}

        def heard(feedback, signals, record):
            return draws.heed(FEED, feedback, Signals({}, signals), record)

        feedback = jax.vmap(heard)(draws.feedback, signals, record)
        return found, (feedback, {}), {"read": read, "age": record.extras["version"].max((1, 2))}


def student(folder, world, *, ahead):
    """A run of two seeds that learns, and writes what it learns from."""
    zero = jnp.zeros((), jnp.int32)
    source = delayed(world, "advantage", ahead=ahead, seeds=2)
    agent, seeds = Student(jnp.zeros(2, jnp.int32), zero), jnp.arange(2, dtype=jnp.int32)
    return Run(agent, BatchRecorder(source, zero, folder), seeds, zero)


def test_learner_of_batches_sampled_ahead_equals_one_of_delayed_batches(tmp_path):
    """Also if a signal comes while both go on, and if then the questions end, and the run goes on
    from what it had saved."""
    world = Letters(interrupts=40)  # 16 answers of the blank batch, 16 of the first, and 8
    lag = student(tmp_path / "lag", Letters(), ahead=False)
    ahead = student(tmp_path / "ahead", world, ahead=True)
    for number in range(5):
        if number == 3:
            world.last = world.begun
            with pytest.raises(Mistake, match=r"every scene of letters failed.*have gone"):
                iterate(ahead)
            fresh = student(tmp_path / "ahead", Letters(), ahead=True).source
            source = ahead.source.to_checkpoint().from_checkpoint(fresh)
            ahead = Run(ahead.agent, source, ahead.seeds, ahead.iteration)
        lag, expected = iterate(lag)
        with Interrupt() as interrupt:
            ahead, found = iterate(ahead)
        assert interrupt.requested == (number == 1)
        assert_equal((lag.agent, expected), (ahead.agent, found))
        assert_equal(lag.source.source.source.curriculum, ahead.source.source.source.curriculum)
    assert world.learning  # when the signal came
    assert len(set(map(int, lag.agent.weights))) == 2
    assert np.asarray(expected["age"]).tolist() == [3, 3]  # of four updates before
    files = [
        {x.name: x.read_bytes() for x in (tmp_path / name).iterdir()} for name in ("lag", "ahead")
    ]
    assert files[0] == files[1]
    assert len(files[0]) == 5


FIELDS = {
    **{"model": "nano", "context": 8, "limit": 2, "updates": 5, "prompts": 4, "group": 4},
    **{"seeds": 2, "lr": 1e-2, "rise": 1, "log_every": 2, "evaluate_episodes": 2},
    **{"evaluate_every": 3, "levels": "0-1", "curriculum": "advantage", "checkpoint_minutes": 0.0},
}


def train(folder, world, **more):
    paths = {"out": folder / "run", "dump": str(folder / "dump")}
    return sterling.train("grpo", lambda: world, **paths, **FIELDS, **more)


class Closes(Letters):
    """A sink, too, that lets no question be asked after the fourth update."""

    def write(self, row):
        self.last = self.begun if row["update"] == 4 else self.last

    def close(self):
        """Nothing is held."""


def recorded(folder):
    """What a run has left: its last checkpoint, its batches, and its rows without times."""
    saved = load_file(max((folder / "run" / "checkpoints").iterdir()) / "tree.safetensors")
    dumped = {path.name: path.read_bytes() for path in (folder / "dump").iterdir()}
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [
        {name: x for name, x in json.loads(line).items() if not name.startswith("time/")}
        for line in lines
    ]
    return saved, dumped, rows


def assert_equal(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


def source_of(replay="", **fields):
    """The source of a language run with these settings."""
    speech, fields = LanguageSettings(model="nano", replay=replay), {"limit": 2, **fields}
    how = {"speech": speech, "context": 8, "updates": 1, "fields": fields}
    return run_builder(resolve_settings("grpo", Letters, **how))(
        jnp.arange(1, dtype=jnp.int32), None, False
    ).source


@pytest.mark.usefixtures("one_layer")
def test_run_with_ahead_has_a_source_that_samples_ahead():
    source = source_of(ahead=1, group=4)
    assert isinstance(source, DelayedSource)
    assert (source.ahead, len(source.waiting)) == (True, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("one_layer")
def test_run_that_samples_ahead_equals_one_with_delayed_batches(tmp_path):
    """Also if it is interrupted while it does both, and if then the questions end, and it is gone
    on with each time."""
    lag, ahead, broken = (tmp_path / name for name in ("lag", "ahead", "broken"))
    train(lag, Letters(), lag=1)
    train(ahead, Letters(pause=0.05), ahead=1)
    saved, dumped, rows = recorded(lag)
    assert_equal((saved, dumped, rows), recorded(ahead))
    assert len(dumped) == FIELDS["updates"]
    assert np.mean([row["data/flat"] for row in rows]) < 0.5  # most groups teach something
    with pytest.raises(SystemExit) as left:
        train(broken, Letters(interrupts=40), ahead=1)
    assert left.value.code == 75
    closes = Closes()
    with pytest.raises(Mistake, match=r"every scene of letters failed.*the questions have gone"):
        sterling.resume(broken / "run", environment=lambda: closes, sinks=[closes])
    assert not (broken / "run" / "result.json").exists()
    assert len(list((broken / "dump").iterdir())) in (4, 5)
    sterling.resume(broken / "run", environment=lambda: Letters(pause=0.05))
    assert_equal((saved, dumped), recorded(broken)[:2])


@pytest.mark.usefixtures("one_layer")
def test_sampling_ahead_is_refused_where_it_has_no_meaning(tmp_path):
    for more, why in (
        ({"lag": 2}, "lag=2 and ahead=1 both say how old answers are. Give one of them"),
        ({"replay": str(tmp_path)}, "replay samples no answers.*Leave out ahead"),
    ):
        with pytest.raises(Mistake, match=why):
            source_of(ahead=1, **more)
