"""Time of calls by the host's clock, from the call until it returned."""

import os
import threading
from time import perf_counter_ns

import numpy


def waited_ns():
    """How long this thread has stood ready without a processor; None where the system does not say."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None


class HostClock:
    """Times calls. Where caches are not to stay as they are, each call begins after all measuring
    threads' processors have written a stretch of memory several times as large as their caches, and
    for a clean cache read another."""

    is_device = False

    def __init__(self, cache, flush_bytes, processors):
        self.flushes = cache != "hot"
        self.reads = cache == "clean"
        self.flush_bytes = flush_bytes
        self.processors = processors or [None]
        self.stretches = []
        self.waited_ns = None

    def span(self, program, iterations):
        """The time of so many calls in nanoseconds, and that the host's clock took it."""
        alone = self.flushes or program.restores
        elapsed = 0
        waited = waited_ns()
        for _ in range(iterations if alone else 1):
            program.restore()
            if self.flushes:
                self.flush()
            calls = 1 if alone else iterations
            start = perf_counter_ns()
            program.call_in_a_row(calls)
            elapsed += perf_counter_ns() - start
        self.waited_ns = None if waited is None else waited_ns() - waited
        return elapsed, False

    def refuse_work_behind_gate(self, program):
        """There is no gate on a CPU."""

    def refuse_work_after_stop(self, program):
        """There is no device that works on."""

    def flush(self):
        """By one thread for each processor: a copy of an array gives up the interpreter's lock."""
        if not self.stretches:
            words = self.flush_bytes // 8
            for _ in self.processors:
                # Zeros would be one page of the system's, mapped again and again.
                self.stretches.append((numpy.arange(words), numpy.arange(1, words + 1)))
        if len(self.stretches) == 1:
            self._flush_one(*self.stretches[0])
            return
        threads = [
            threading.Thread(target=self._flush_on, args=(processor, *held))
            for processor, held in zip(self.processors, self.stretches)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _flush_on(self, processor, written, read):
        os.sched_setaffinity(0, {processor})
        self._flush_one(written, read)

    def _flush_one(self, written, read):
        numpy.add(written, 1, out=written)
        if self.reads:
            read.sum()
