"""Answer asks with a model of this process.

Each of a few *workers*, threads that live while there is something to do, fills slots of its own
(slots.py) with asks from one queue and writes a few tokens in all of them, again and again. A
program that writes answers computes small matrix products one after another, which leave most of a
second core of a CPU idle; so two workers run at once there.

Which worker writes an answer, when, and beside which others changes nothing, not even rounding.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sterling.language.engine import slots
from sterling.language.engine.ask import Ask, Said
from sterling.language.engine.slots import Begin, Prefixes, SlotShapes
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.token_sampling import Sampling, check_sampling
from sterling.system.mistake import Mistake

QUANTUM = 16  # tokens of every answer between two looks at the queue
REFILL_DIVISOR = 4  # while asks wait, slots are filled as soon as 1 / 4 of them is free
CPU_WORKERS = 2
MIN_SLOTS = 8  # of a worker, if there are several
Asked = tuple[Ask, "Future[Said]"]
_running = threading.BoundedSemaphore(CPU_WORKERS)  # programs of all samplers at once
_compiling = threading.Lock()
_compiled: set[Hashable] = set()  # shapes whose programs are compiled
_samplers: weakref.WeakSet[LocalSampler] = weakref.WeakSet()  # all that there are


def worker_slots(answers: int) -> int:
    """Return how many slots each worker has, if so many answers are written at a time. That is a
    function of the number alone, so that answers do not depend on the number of cores."""
    many = jax.default_backend() == "cpu" and answers >= CPU_WORKERS * MIN_SLOTS
    return -(-answers // CPU_WORKERS) if many else answers


class LocalSampler:
    """Answers asks with ``model``, as :func:`slots.for_decoding` lays it out.

    ``version``: the updates that the model has had. ``workers`` (default: 2 on a CPU, else 1), each
    with slots of its own, and ``quantum`` change nothing but time.
    """

    def __init__(
        self,
        model: LanguageModel,
        shapes: SlotShapes,
        *,
        version: int = 0,
        workers: int | None = None,
        quantum: int = QUANTUM,
    ):
        self.model, self.shapes, self.version, self.quantum = model, shapes, version, quantum
        usual = CPU_WORKERS if jax.default_backend() == "cpu" else 1
        self.workers = usual if workers is None else workers
        self._queue: collections.deque[Asked] = collections.deque()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._open = 0  # asks without an answer
        self._known = _shape_key(model, shapes)
        self._closed = False
        _samplers.add(self)

    def ask(self, asks: Sequence[Ask]) -> list[Future[Said]]:
        """Begin to answer; see :class:`sterling.language.engine.ask.Sampler`. Raises Mistake for a
        prompt that leaves no room for its answer, and for values out of range."""
        for each in asks:
            self._check(each)
        asked: list[Asked] = [(each, Future()) for each in asks]
        with self._lock:
            late = self._closed
            if not late:
                self._queue += asked
                self._open += len(asked)
                self._start_workers()
        if late:
            _cancel(asked)
        return [future for _, future in asked]

    def close(self) -> None:
        """Answer nothing more; wait for what is computed now, and cancel what is not answered and
        what is asked from now on."""
        with self._lock:
            self._closed, threads = True, list(self._threads)
        _cancel(self._take())
        for thread in threads:
            thread.join()

    def _start_workers(self) -> None:
        wanted = min(self.workers, -(-self._open // self.shapes.slots))
        for _ in range(len(self._threads), wanted):
            thread = threading.Thread(target=self._work, daemon=True)
            thread.start()  # it waits for the lock
            self._threads.add(thread)

    def _check(self, ask: Ask) -> None:
        """Raise Mistake for an ask with which a program would fail, or answer another one."""
        shapes, count = self.shapes, len(ask.ids)
        if not (count and 1 <= ask.limit <= shapes.limit and count + ask.limit <= shapes.context):
            raise Mistake(
                f"a prompt of {count} tokens and an answer of up to {ask.limit} do not fit: "
                f"they may have {shapes.context} tokens together, the answer 1 to {shapes.limit}"
            )
        if min(ask.ids) < 0 or max(ask.ids) >= self.model.vocabulary:
            raise Mistake(f"a prompt's tokens must be 0 to {self.model.vocabulary - 1}")
        if not 0 <= ask.chance < 1 << 64:
            raise Mistake(f"an ask's chance has 64 bits; got {ask.chance}")
        check_sampling(ask.temperature, ask.top_k, ask.top_p)
        if (ask.top_k or ask.top_p < 1.0) and not shapes.has_cuts:
            raise Mistake("top-k and top-p need slots that sort: SlotShapes(..., has_cuts=True)")

    def _work(self) -> None:
        """Answer asks until none are left."""
        worker = _SlotWorker(self.model, self.shapes, self.version)
        try:
            while (fresh := self._next(worker)) is not None:
                free = max(1, self.shapes.slots // REFILL_DIVISOR) if self._queue else None
                with _programs(self._known):
                    delivered = worker.write(fresh, self.quantum, free)
                with self._lock:
                    self._open -= delivered
        except BaseException as error:  # of a program, say memory: whoever asked is told
            with self._lock:
                self._threads.discard(threading.current_thread())
            lost = [*worker.held, *self._take()]
            with self._lock:
                self._open -= len(lost)
            for _, future in lost:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def _next(self, worker: _SlotWorker) -> list[Asked] | None:
        """Return what a worker shall begin now; None if it is to end."""
        with self._lock:
            free, share = worker.free, -(-self._open // len(self._threads))
            waits = free < max(1, self.shapes.slots // REFILL_DIVISOR)
            lacks = share - (self.shapes.slots - free)  # of its part of all that is not answered
            count = 0 if waits else max(0, min(free, lacks, len(self._queue)))
            fresh = [self._queue.popleft() for _ in range(count)]
            ends = self._closed or (not fresh and free == self.shapes.slots)
            if ends:
                self._threads.discard(threading.current_thread())
        if not ends:
            return fresh
        _cancel([*worker.held, *fresh])
        return None

    def _take(self) -> list[Asked]:
        """Take all that is asked and not begun."""
        with self._lock:
            found = list(self._queue)
            self._queue.clear()
        return found


class _SlotWorker:
    """Slots, and who waits for the answers that are written in them."""

    def __init__(self, model: LanguageModel, shapes: SlotShapes, version: int):
        self.model, self.shapes, self.version = model, shapes, version
        self._state: slots.Slots | None = None  # none before the first answer
        self._asked: list[Asked | None] = [None] * shapes.slots
        self._unread: Sequence[Asked] = ()  # those of the latest that may not have a slot yet

    @property
    def free(self) -> int:
        """Return the number of free slots."""
        return self._asked.count(None)

    @property
    def held(self) -> list[Asked]:
        """Return the asks whose answers are to be written here."""
        seated = [each for each in self._asked if each is not None]
        return [*seated, *(each for each in self._unread if each not in seated)]

    def write(self, fresh: Sequence[Asked], quantum: int, free: int | None) -> int:
        """Begin to answer ``fresh``, which there are slots for, write up to ``quantum`` tokens of
        every answer, or until ``free`` slots (None: all) are free, and deliver what is finished;
        return how many answers that are."""
        self._unread, shapes = fresh, self.shapes  # first of all: they are told what fails below
        state = self._state or slots.empty_slots(self.model, shapes)
        self._state = None  # its arrays are given away
        for prompts in self._by_prompt(fresh):
            state = self._begin(state, prompts)
        self._unread = ()
        most = shapes.slots if free is None else free
        self._state = state = slots.advance(self.model, state, quantum, most, shapes)
        busy = np.asarray(state.busy)
        done = [n for n, each in enumerate(self._asked) if each is not None and not busy[n]]
        if not done:
            return 0
        parts = (state.written, state.stopped, state.ids, state.log_prob)
        written, stopped, ids, log_prob = jax.device_get(parts)
        likeliest = jax.device_get(state.likeliest)
        for slot in done:
            asked, self._asked[slot] = self._asked[slot], None
            assert asked is not None
            count = written[slot]
            said = tuple(ids[slot, :count].tolist()), tuple(log_prob[slot, :count].tolist())
            if asked[1].set_running_or_notify_cancel():  # unless its asker has cancelled it
                top = None
                if likeliest is not None:
                    top = (likeliest.ids[slot, :count], likeliest.log_prob[slot, :count])
                asked[1].set_result(Said(*said, bool(stopped[slot]), self.version, top))
        return len(done)

    def _by_prompt(self, fresh: Sequence[Asked]) -> Iterator[dict[tuple[int, ...], list[Asked]]]:
        """Return asks by their prompts, as many of these as are read at once: prompts of like
        length together."""
        every: dict[tuple[int, ...], list[Asked]] = {}
        for each in fresh:
            every.setdefault(each[0].ids, []).append(each)
        order = sorted(every, key=len)
        for begin in range(0, len(order), self.shapes.prompts):
            yield {ids: every[ids] for ids in order[begin : begin + self.shapes.prompts]}

    def _begin(
        self, state: slots.Slots, prompts: dict[tuple[int, ...], list[Asked]]
    ) -> slots.Slots:
        """Read prompts, and begin their answers in free slots."""
        shapes, prefixes = self.shapes, self._read(list(prompts))
        asked = [(row, each) for row, own in enumerate(prompts.values()) for each in own]
        free = [n for n, each in enumerate(self._asked) if each is None][: len(asked)]
        count = shapes.slots
        prompt, slot = np.zeros(count, np.int32), np.full(count, count, np.int32)
        chance, limit = np.zeros((count, 2), np.uint32), np.zeros(count, np.int32)
        cuts = np.tile(np.array([[1.0, 0, 1.0]]), (count, 1))
        for n, (place, (row, each)) in enumerate(zip(free, asked, strict=True)):
            self._asked[place], ask = each, each[0]
            prompt[n], slot[n], limit[n] = row, place, ask.limit
            chance[n] = ask.chance & 0xFFFFFFFF, ask.chance >> 32
            cuts[n] = ask.temperature, ask.top_k, ask.top_p
        how = _sampling(cuts, shapes)
        chances, limits = jnp.asarray(chance), jnp.asarray(limit)
        begin = Begin(jnp.asarray(prompt), jnp.asarray(slot), chances, limits, how)
        return slots.admit(state, prefixes, begin)

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> Prefixes:
        shapes = self.shapes
        ids = np.zeros((shapes.prompts, shapes.room), np.int32)
        lengths = np.zeros(shapes.prompts, np.int32)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)], lengths[row] = prompt, len(prompt)
        return slots.read(self.model, *jax.device_put((ids, lengths)), shapes)


@contextlib.contextmanager
def _programs(known: Hashable) -> Iterator[None]:
    """Let a few programs run at once, but one alone that is not compiled yet: the others take what
    it compiles."""
    with _compiling if known not in _compiled else contextlib.nullcontext(), _running:
        yield
    _compiled.add(known)


def _sampling(how: Float[np.ndarray, "row 3"], shapes: SlotShapes) -> Sampling:
    temperature, top_p = (jnp.asarray(how[:, n], jnp.float32) for n in (0, 2))
    return Sampling(temperature, jnp.asarray(how[:, 1], jnp.int32), top_p, shapes.has_cuts)


def _shape_key(model: LanguageModel, shapes: SlotShapes) -> Hashable:
    leaves, structure = jax.tree.flatten(model)
    return shapes, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def _cancel(asked: Iterable[Asked]) -> None:
    """Cancel asks, and wake those who wait for them."""
    for _, future in asked:
        future.cancel()
        future.set_running_or_notify_cancel()


@atexit.register
def _close_all() -> None:
    """Let no worker compute while the interpreter ends: that aborts the process."""
    for sampler in list(_samplers):
        sampler.close()
