"""The last stop: end the process at a given time whatever it is doing."""

import _thread
import os
import select

from credential_shim import stdio
from credential_shim.errors import UnreachableError


def arm(seconds: float, message: str) -> None:
    """End the process with one line and the exit code "unreachable" after ``seconds``.

    A thread rather than SIGALRM: a handler in Python does not run while a resolver or a connect
    is stuck inside the C library, and the signal's default action would give no cause. Blocking
    calls release the interpreter's lock, so the thread runs. It dies with the process, or with
    an execve.
    """
    never = _thread.allocate_lock()
    never.acquire()

    def stop() -> None:
        never.acquire(timeout=seconds)
        # A caller that reads neither pipe must not hold the process up here.
        writable = select.poll()
        writable.register(2, select.POLLOUT)
        if writable.poll(0):
            stdio.say(message)
        os._exit(UnreachableError.exit_code)

    _thread.start_new_thread(stop, ())
