"""The slow path: wire the real collaborators together and run get-token or check."""

import os
import sys

from credential_shim import cache, fastpath, gate, guard, stdio
from credential_shim._version import PROTOCOL, VERSION
from credential_shim.arguments import Request
from credential_shim.clock import Deadline, SystemClock
from credential_shim.entries import key_of
from credential_shim.errors import OK
from credential_shim.fastpath import Release
from credential_shim.issue import Issuer

HARD_SECONDS = 8.0
"""No run lasts longer; client-go waits without a time-out, holding a lock, while one does."""
_MARGIN_SECONDS = 0.5
"""Left between the deadline of the work and the hard stop, so that the cause can be told."""

REEXEC_VARIABLE = "HOSTSYNC_CREDENTIAL_REEXEC"
"""Set for the shim behind ``current`` when it is run instead of this one: the monotonic deadline.

It only ever prevents a second such run and shortens the time left; whoever sets it by hand gains
nothing but a refusal.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from credential_shim.ports import Source
    from credential_shim.tokens import Token


class Serving:
    """One run of get-token or check."""

    def __init__(
        self, release: Release, request: Request, environ: "Mapping[str, str]", started: float
    ) -> None:
        self._clock = SystemClock()
        self._release = release
        self._request = request
        self._environ = environ
        hard = _hard_stop(environ, started)
        self._hard = hard
        self._deadline = Deadline(self._clock, hard - _MARGIN_SECONDS)

    def get_token(self, exec_info: str) -> int:
        """Write an ExecCredential to stdout and return 0; raises ShimError."""
        self._arm()
        api_version = _requested_version(exec_info)
        self._pass_gate(may_reexec=REEXEC_VARIABLE not in self._environ)
        identity = self._request.identity
        store = cache.open_store(self._request.cache_dir, key_of(identity, api_version), stdio.say)
        if self._request.layers.file is not None:
            self._request.layers.file.remember(self._request.cache_dir)
        self._request.facts["cache"] = "shared"
        issuer = Issuer(_LateSource(self._source), store, self._clock, stdio.say)
        stdio.write_out(issuer.obtain(api_version, self._deadline, self._request.notes))
        return OK

    def check(self, exec_info: str) -> int:
        """Fetch one token past every cache, say so without showing it, return the exit code.

        The answer is about the release that was asked: no other one takes over.
        """
        self._arm()
        api_version = _requested_version(exec_info)
        if self._request.gated:
            self._pass_gate(may_reexec=False)
        for note in self._request.notes:
            stdio.say(note)
        from credential_shim import credential

        token = self._source().fetch(self._deadline.remaining())
        entry = credential.build_entry(token, api_version, self._clock.now(), forced=False)
        for warning in token.warnings:
            stdio.say(warning)
        identity = self._request.identity
        until = credential.rfc3339(entry.expires)
        line = (
            f"ok {identity} endpoint={identity.place} expires={until} "
            f"release={VERSION} protocol={PROTOCOL}\n"
        )
        stdio.write_out(line.encode())
        return OK

    def explain(self, exec_info: str) -> int:
        """Say what get-token would do, and why, without asking anybody; return 0."""
        from credential_shim.explanation import explain

        self._arm()
        api_version = _requested_version(exec_info)
        for line in explain(self._request, self._release, self._environ, api_version):
            stdio.write_out(f"{line}\n".encode("utf-8", "replace"))
        return OK

    def _arm(self) -> None:
        seconds = max(0.0, self._hard - self._clock.monotonic())
        guard.arm(seconds, f"no result within {HARD_SECONDS:.0f} seconds; gave up")

    def _source(self) -> "Source":
        # The one place where a login mode becomes a source. What only Entra needs is imported
        # for Entra only: TLS alone takes longer to load than the rest of the shim.
        identity, clock = self._request.identity, self._clock
        self._request.facts["cache"] = "miss"
        if identity.tenant is not None:
            from credential_shim.entra import EntraSource
            from credential_shim.tls import TlsTransport

            poster = TlsTransport(clock, self._environ, self._request.ca_file)
            return EntraSource(identity, identity.tenant, clock, poster)
        from credential_shim.exchange import DirectTransport

        if identity.login == "arc":
            from credential_shim.arc import ArcSource

            return ArcSource(identity, clock, DirectTransport(clock))
        from credential_shim.imds import ImdsSource

        return ImdsSource(identity, clock, DirectTransport(clock))

    def _pass_gate(self, *, may_reexec: bool) -> None:
        passage = gate.Gate(
            self._release,
            self._clock,
            serve_on_skew=self._request.serve_on_skew,
            reexec=self._reexec if may_reexec else None,
        )
        warning = passage.wait(self._deadline)
        if warning:
            stdio.say(warning)

    def _reexec(self) -> None:
        shim = f"{self._release.current_link}/bin/{stdio.PROGRAM}"
        environ = dict(self._environ)
        environ[REEXEC_VARIABLE] = f"{self._hard:.3f}"
        os.execve(shim, [shim, *sys.argv[1:]], environ)  # noqa: S606 - no shell is wanted


class _LateSource:
    """A source made, with all it loads, only when it is asked: most that wait never ask."""

    def __init__(self, make: "Callable[[], Source]") -> None:
        self._make = make

    def fetch(self, seconds: float) -> "Token":
        """See ``ports.Source``."""
        return self._make().fetch(seconds)


def _requested_version(exec_info: str) -> str:
    """As ``credential.requested_version``, which parses what cannot be told at once."""
    version = fastpath.api_version_at_once(exec_info)
    if version is not None:
        return version
    from credential_shim import credential

    return credential.requested_version(exec_info)


def _hard_stop(environ: "Mapping[str, str]", started: float) -> float:
    """Return the monotonic end of this run: the shim's that handed over, if it can be that."""
    text = environ.get(REEXEC_VARIABLE, "")
    whole, _, part = text.partition(".")
    if len(text) <= 20 and text.isascii() and whole.isdecimal() and part.isdecimal():
        inherited = float(text)
        if started < inherited <= started + HARD_SECONDS:
            return inherited
    return started + HARD_SECONDS
