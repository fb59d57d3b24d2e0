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


class Pool:
    """Runs jobs (plain data) by a dotted worker name; results come back as they are done.

    ``submit`` may be called between results, so that a fact starts when its needs are there.
    """

    def __init__(self, worker: str, num_workers: int, on_event: Callable[[Event], None]) -> None:
        self._worker = worker
        self._num_workers = num_workers
        self._on_event = on_event
        self._waiting: list[Job] = []
        self._running: dict[Future[dict[str, str]], Job] = {}
        self._executor: ProcessPoolExecutor | None = None
        self._manager: Any = None
        self._stop = threading.Event()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        if self._num_workers == 1:
            self._waiting.append(job)
            return
        executor, events = self._start()
        self._running[executor.submit(_call, self._worker, job, events)] = job

    def results(self) -> Iterator[Result]:
        """Jobs with the failures of their facts; ends when nothing is queued or running."""
        while self._waiting or self._running:
            if self._waiting:
                job = self._waiting.pop(0)
                yield job, resolve(self._worker)(job, self._on_event)
                continue
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in done:
                yield self._finish(future)

    def _finish(self, future: Future[dict[str, str]]) -> Result:
        job = self._running.pop(future)
        try:
            return job, future.result()
        except BrokenProcessPool:
            # a worker was killed (out of memory, say): new workers for what is left
            self.close()
            self._executor = None
            return job, dict.fromkeys(
                job["keys"], "its worker process was killed, perhaps for want of memory"
            )

    def _start(self) -> tuple[ProcessPoolExecutor, Any]:
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._manager = context.Manager()
            self._events = self._manager.Queue()
            self._executor = ProcessPoolExecutor(self._num_workers, mp_context=context)
            self._stop.clear()
            threading.Thread(target=self._listen, args=(self._events,), daemon=True).start()
        return self._executor, self._events

    def _listen(self, events: Any) -> None:
        while not self._stop.is_set():
            try:
                self._on_event(events.get(timeout=0.2))
            except queue.Empty:
                continue
            except (EOFError, OSError):
                return

    def close(self) -> None:
        """Stop the workers."""
        self._stop.set()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._manager.shutdown()


def _call(worker: str, job: Job, events: Any) -> dict[str, str]:
    return resolve(worker)(job, events.put)


def resolve(dotted: str) -> Callable[[Job, Callable[[Event], None]], dict[str, str]]:
    """``package.module:name`` to the function."""
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)
