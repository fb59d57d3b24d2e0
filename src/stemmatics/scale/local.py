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

_KILLED = "its worker process was killed, possibly because memory ran out"


class Pool:
    """Runs jobs (plain data) by a dotted worker name and yields results as jobs finish.

    ``submit`` may be called between results, so that a fact starts as soon as its needs are done. When a
    worker process is killed, the pool can't tell which job did it: every running job is tried again
    alone, and fails if its worker is killed again.
    """

    def __init__(self, worker: str, num_workers: int, on_event: Callable[[Event], None]) -> None:
        self._worker = worker
        self._num_workers = num_workers
        self._on_event = on_event
        self._waiting: list[Job] = []
        self._suspects: list[Job] = []
        self._running: dict[Future[dict[str, str]], tuple[Job, bool]] = {}
        self._executor: ProcessPoolExecutor | None = None
        self._manager: Any = None
        self._events: Any = None
        self._stop = threading.Event()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._waiting.append(job)

    def results(self) -> Iterator[Result]:
        """Jobs with the failures of their facts; ends when nothing is queued or running."""
        while self._waiting or self._suspects or self._running:
            if self._num_workers == 1:
                job = self._waiting.pop(0)
                yield job, resolve(self._worker)(job, self._on_event)
                continue
            self._launch_ready()
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in done:
                result = self._finish(future)
                if result is not None:
                    yield result

    def _launch_ready(self) -> None:
        """Launch no more jobs than workers, so that a waiting job is never a suspect."""
        if self._suspects:
            if not self._running:
                self._launch(self._suspects.pop(0), alone=True)
            return
        while self._waiting and len(self._running) < self._num_workers:
            self._launch(self._waiting.pop(0), alone=False)

    def _launch(self, job: Job, *, alone: bool) -> None:
        try:
            future = self._workers().submit(_call, self._worker, job, self._events)
        except BrokenProcessPool:
            # an idle worker was killed
            self.close()
            future = self._workers().submit(_call, self._worker, job, self._events)
        self._running[future] = (job, alone)

    def _finish(self, future: Future[dict[str, str]]) -> Result | None:
        job, alone = self._running.pop(future)
        try:
            return job, future.result()
        except BrokenProcessPool:
            self.close()
            if alone:
                return job, dict.fromkeys(job["keys"], _KILLED)
            self._suspects.append(job)
            return None

    def _workers(self) -> ProcessPoolExecutor:
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._manager = context.Manager()
            self._events = self._manager.Queue()
            self._executor = ProcessPoolExecutor(self._num_workers, mp_context=context)
            self._stop = threading.Event()
            threading.Thread(target=self._listen, args=(self._events, self._stop), daemon=True).start()
        return self._executor

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
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._manager.shutdown()
            self._executor = None


def _call(worker: str, job: Job, events: Any) -> dict[str, str]:
    return resolve(worker)(job, events.put)


def resolve(dotted: str) -> Worker:
    """The function named ``package.module:name``."""
    module, _, name = dotted.partition(":")
    worker: Worker = getattr(importlib.import_module(module), name)
    return worker
