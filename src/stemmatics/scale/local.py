"""Workers on this machine: this process for one, spawned processes for more."""

from __future__ import annotations

import importlib
import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

Event = Mapping[str, Any]
Job = Mapping[str, Any]
Result = tuple[Job, dict[str, str]]
Worker = Callable[[Job, Callable[[Event], None]], dict[str, str]]

KILLED = "its worker process was killed, possibly because memory ran out"


class Seat:
    """The place of one worker: its process, and the models of the jobs that it ran."""

    def __init__(self) -> None:
        self.executor: ProcessPoolExecutor | None = None
        self.job: Job | None = None
        self._last: set[str] = set()
        self._all_models: set[str] = set()

    def start(self, job: Job) -> None:
        """A job begins here."""
        self.job = job
        self._last = set(job.get("models", ()))
        self._all_models |= self._last

    def shares(self, job: Job) -> tuple[int, int]:
        """How many of a job's models the last job here used, and how many any job."""
        models = set(job.get("models", ()))
        return len(models & self._last), len(models & self._all_models)

    def close(self) -> None:
        """Stop the process; what it held is gone."""
        if self.executor is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = None
        self._last, self._all_models = set(), set()


class Pool:
    """Runs jobs (plain data) by a dotted worker name and yields results as jobs finish.

    ``submit`` may be called between results, so that a fact starts as soon as its needs are done. Where jobs
    name their ``level`` and their ``models``, lower levels come first, and within a level those of one model
    follow one another on one worker. A job whose worker process is killed is tried again alone, since another
    job may have taken the memory, and fails if its worker is killed again. A function ``release`` in the
    worker's module is called at the end, where this process ran the jobs.
    """

    def __init__(self, worker: str, num_workers: int, on_event: Callable[[Event], None]) -> None:
        self._worker = worker
        self._on_event = on_event
        self._waiting: list[Job] = []
        self._suspects: list[Job] = []
        self._seats = [Seat() for _ in range(num_workers)]
        self._running: dict[Future[dict[str, str]], tuple[Seat, bool]] = {}
        self._manager: Any = None
        self._events: Any = None
        self._stop = threading.Event()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._waiting.append(job)

    def results(self) -> Iterator[Result]:
        """Jobs with the failures of their facts; ends when nothing is queued or running."""
        while self._waiting or self._suspects or self._running:
            if len(self._seats) == 1:
                job = self._next_job(self._seats[0])
                yield job, resolve(self._worker)(job, self._on_event)
                continue
            self._launch_ready()
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in done:
                result = self._finish(future)
                if result is not None:
                    yield result

    def _next_job(self, seat: Seat) -> Job:
        """Of the waiting jobs of the lowest level the one that shares most models with the seat.

        Of equals the one that shares fewest with seats that are busy, then the one that has waited longest.
        """
        busy = [other for other in self._seats if other is not seat and other.job is not None]

        def preference(job: Job) -> tuple[int, int, int, int]:
            last, order = seat.shares(job)
            return -job.get("level", 0), last, -sum(other.shares(job)[0] for other in busy), order

        job = max(self._waiting, key=preference)
        self._waiting.remove(job)
        seat.start(job)
        return job

    def _launch_ready(self) -> None:
        """Launch no more jobs than workers, suspects alone."""
        if self._suspects:
            if not self._running:
                job, seat = self._suspects.pop(0), self._seats[0]
                seat.start(job)
                self._launch(seat, job, alone=True)
            return
        for seat in self._seats:
            if self._waiting and seat.job is None:
                self._launch(seat, self._next_job(seat), alone=False)

    def _launch(self, seat: Seat, job: Job, *, alone: bool) -> None:
        try:
            future = self._process(seat).submit(_call, self._worker, job, self._events)
        except BrokenProcessPool:
            # an idle worker was killed
            seat.close()
            future = self._process(seat).submit(_call, self._worker, job, self._events)
        self._running[future] = (seat, alone)

    def _finish(self, future: Future[dict[str, str]]) -> Result | None:
        seat, alone = self._running.pop(future)
        job, seat.job = seat.job, None
        assert job is not None, "a running seat has a job"
        try:
            return job, future.result()
        except BrokenProcessPool:
            seat.close()
            if alone:
                return job, dict.fromkeys(job["keys"], KILLED)
            self._suspects.append(job)
            return None

    def _process(self, seat: Seat) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        if self._manager is None:
            self._manager = context.Manager()
            self._events = self._manager.Queue()
            self._stop = threading.Event()
            threading.Thread(target=self._listen, args=(self._events, self._stop), daemon=True).start()
        if seat.executor is None:
            seat.executor = ProcessPoolExecutor(1, mp_context=context)
        return seat.executor

    def _listen(self, events: Any, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._on_event(events.get(timeout=0.2))
            except queue.Empty:
                continue
            except (EOFError, OSError):
                return

    def close(self) -> None:
        """Stop the workers; new ones start with the next job."""
        self._stop.set()
        for seat in self._seats:
            seat.close()
        if self._manager is not None:
            self._manager.shutdown()
            self._manager = None
        if len(self._seats) == 1:
            getattr(_module(self._worker), "release", lambda: None)()


def _call(worker: str, job: Job, events: Any) -> dict[str, str]:
    return resolve(worker)(job, events.put)


def _module(dotted: str) -> Any:
    return importlib.import_module(dotted.partition(":")[0])


def resolve(dotted: str) -> Worker:
    """The function named ``package.module:name``."""
    worker: Worker = getattr(_module(dotted), dotted.partition(":")[2])
    return worker
