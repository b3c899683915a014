"""Processes for the tests that need more than one: forked from the test, so that nothing is imported again."""

from __future__ import annotations

import multiprocessing
import warnings
from contextlib import contextmanager

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
