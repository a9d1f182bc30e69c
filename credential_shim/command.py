"""The commands: fast path first, everything else imported only when it is needed."""

import os
import sys
import time

from credential_shim import arguments, fastpath, stdio
from credential_shim._version import PROTOCOL, VERSION
from credential_shim.errors import INTERNAL, INTERRUPTED, OK, ShimError

EXEC_INFO_VARIABLE = "KUBERNETES_EXEC_INFO"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def entry() -> None:
    """Run the command line and end the process with its exit code.

    ``os._exit`` skips the interpreter's own clean-up: nothing is buffered, and the kernel closes
    descriptors and drops locks.
    """
    started = time.monotonic()
    stdio.fill_closed()
    release = fastpath.release_of(__file__)
    os._exit(run(sys.argv[1:], os.environ, release=release, started=started))


def run(
    argv: "Sequence[str]",
    environ: "Mapping[str, str]",
    *,
    release: fastpath.Release,
    started: float,
) -> int:
    """Run one command of ``release`` and return its exit code; ``started`` is monotonic."""
    try:
        return _dispatch(argv, environ, release, started)
    except ShimError as error:
        stdio.say(error.message)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last door: its text could hold a token
        stdio.say(f"internal error ({_describe(error)}); please report it")
        return INTERNAL


def _dispatch(
    argv: "Sequence[str]",
    environ: "Mapping[str, str]",
    release: fastpath.Release,
    started: float,
) -> int:
    command, words = arguments.split_command(argv)
    if command in (arguments.VERSION, arguments.HELP):
        return _tell(command)
    if command == arguments.EXEC:
        from credential_shim.foreign import execute

        return execute(words, environ, started)
    request = arguments.parse(command, words, environ)

    def serve() -> int:
        return _serve(command, request, environ, (release, started))

    if request.log == arguments.NO_LOG or command == arguments.EXPLAIN:
        return serve()
    from credential_shim.report import reported

    return reported(request, command, started, serve)


def _serve(
    command: str,
    request: arguments.Request,
    environ: "Mapping[str, str]",
    run: tuple[fastpath.Release, float],
) -> int:
    release, started = run
    exec_info = environ.get(EXEC_INFO_VARIABLE, "")
    if command == arguments.GET_TOKEN and fastpath.serve_cached(request, exec_info, release):
        return OK
    from credential_shim.serving import Serving

    serving = Serving(release, request, environ, started)
    if command == arguments.EXPLAIN:
        return serving.explain(exec_info)
    return (serving.check if command == arguments.CHECK else serving.get_token)(exec_info)


def _tell(command: str) -> int:
    if command == arguments.VERSION:
        text = f"{stdio.PROGRAM} {VERSION} (protocol {PROTOCOL})\n"
    else:
        from credential_shim.manual import TEXT as text  # noqa: N811 - a text like the other
    stdio.write_out(text.encode())
    return OK


def _describe(error: Exception) -> str:
    """Type and place of an unforeseen error, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" in {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
    return type(error).__name__ + place
