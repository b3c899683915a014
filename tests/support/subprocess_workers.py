"""Processes for the tests that need more than one: forked from the test, so that nothing is imported again."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import signal
import warnings
from contextlib import contextmanager
from functools import partial

FORK = multiprocessing.get_context("fork")


def start(function, *args):
    """Start a process that runs a function; an error in it ends the process with exit code 1."""
    process = FORK.Process(target=function, args=args, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, where the test runner has threads
        process.start()
    return process


@contextmanager
def running(function, *args):
    """Have a process that runs a function for a while; it is killed at the end of it."""
    process = start(function, *args)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def together(*functions):
    """Run each function in a process of its own, all let go at one moment; what they return.

    An error in one of them is an EOFError here; its traceback is on standard error.
    """
    gate = FORK.Barrier(len(functions))
    pipes = [FORK.Pipe(duplex=False) for _ in functions]
    processes = [start(_answer, function, gate, send) for function, (_, send) in zip(functions, pipes, strict=True)]
    for _, send in pipes:
        send.close()
    answers = [receive.recv() for receive, _ in pipes]
    for process in processes:
        process.join()
    return answers


def apart(function):
    """Run a function in a process of its own; what it returns."""
    return together(function)[0]


def _answer(function, gate, send):
    gate.wait()
    send.send(function())


def runs_to_its_end(function, step):
    """Whether a function comes to its end in a process that is killed in its nth call that changes the disk."""
    process = start(run_and_die, function, step)
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def run_and_die(function, step):
    """Run a function, and kill this process before its nth call that changes the disk; in the middle of a write."""
    steps = itertools.count()

    def counted(name, call, *args, **options):
        if next(steps) == step:
            if name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)

    for name in ("mkdir", "write", "fsync", "replace", "rename", "unlink", "rmdir"):
        setattr(os, name, partial(counted, name, getattr(os, name)))
    function()


def fail_at(patch, name, nth):
    """Make the nth call of a function of `os` fail; the list of calls, which grows."""
    calls, call = [], getattr(os, name)

    def counted(*args, **options):
        calls.append(args)
        if len(calls) == nth + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(*args, **options)

    patch.setattr(os, name, counted)
    return calls
