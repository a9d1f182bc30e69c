"""Names to addresses, within a time: the C library's resolver keeps none."""

import _thread
import socket

from credential_shim.errors import UnreachableError

RESOLVE_SECONDS = 3.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    Sockaddr = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
    Address = tuple[socket.AddressFamily, Sockaddr]


def resolve(host: str, port: int, seconds: float) -> "list[Address]":
    """Return the addresses of ``host``, at least one, in the system's order.

    A name server that does not answer would hold getaddrinfo, and with it the cached token that
    could be served instead, so it runs in a thread that is left behind. Raises UnreachableError.
    """
    outcome: list[list[Address] | OSError] = []
    done = _thread.allocate_lock()
    done.acquire()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            outcome.append([(family, address) for family, _, _, _, address in found])
        except OSError as error:
            outcome.append(error)
        finally:
            done.release()

    _thread.start_new_thread(look_up, ())
    if not done.acquire(timeout=min(seconds, RESOLVE_SECONDS)):
        raise UnreachableError(f"{host} was not resolved in time: check the name servers", tries=3)
    (result,) = outcome
    if isinstance(result, OSError):
        tries = 3 if result.errno == socket.EAI_AGAIN else 1
        raise UnreachableError(f"{host} is not resolved: {result.strerror}", tries=tries)
    return result
