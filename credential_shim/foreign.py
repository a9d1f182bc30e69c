"""The gate before somebody else's plugin: its seal is checked as our own is, then it runs.

The program named is followed to the slot it lies in. That is either the slot itself, a file whose
seal is ``<slot>.RELEASE``, or a file beneath a slot, a directory whose seal is ``<slot>/RELEASE``.
"""

import os
from collections.abc import Mapping, Sequence

from credential_shim import arguments, gate, guard, stdio
from credential_shim.clock import Deadline, SystemClock
from credential_shim.errors import UsageError

GATE_SECONDS = 7.5
_SLOTS = ("blue", "green")
_USAGE = "exec needs: [--on-skew refuse|serve] -- PROGRAM [ARGUMENT…], PROGRAM an absolute path"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class ForeignRelease:
    """The slot which a program lies in; see ``ports.Sealed``."""

    __slots__ = ("_is_file", "_root", "_slot", "current_link")

    def __init__(self, root: str, slot: str, prefix: str, *, is_file: bool) -> None:
        self._root: Final = root
        self._slot: Final = slot
        self._is_file: Final = is_file
        self.current_link: Final = f"{root}/{prefix}current"

    @property
    def own_seal(self) -> str:
        """See ``ports.Sealed``."""
        return self._seal_of(f"{self._root}/{self._slot}")

    @property
    def current_seal(self) -> str:
        """See ``ports.Sealed``; the link is followed at each look."""
        return self._seal_of(os.path.realpath(self.current_link))

    @property
    def wanted(self) -> str:
        """See ``ports.Sealed``."""
        return f"{self._root}/WANTED"

    def _seal_of(self, content: str) -> str:
        return f"{content}.RELEASE" if self._is_file else f"{content}/RELEASE"


def execute(words: Sequence[str], environ: Mapping[str, str], started: float) -> int:
    """Run the program after ``--`` in this process's place, once the gate is open.

    Environment, arguments and standard descriptors stay as they are. Does not return on success;
    raises SkewError and UsageError.
    """
    flags, program, arguments_of = split(words)
    serve_on_skew = arguments.serves_on_skew(flags.get("on_skew"))
    real = os.path.realpath(program)
    release = release_of(program, real)
    clock = SystemClock()
    guard.arm(GATE_SECONDS + 0.5, "the release gate did not end in time; gave up")
    passage = gate.Gate(release, clock, serve_on_skew=serve_on_skew, reexec=None)
    warning = passage.wait(Deadline(clock, started + GATE_SECONDS))
    if warning:
        stdio.say(warning)
    try:
        # What was checked is what runs, even if a link is switched at this moment.
        os.execve(real, [program, *arguments_of], dict(environ))  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise UsageError(f"{program} cannot be run: {error.strerror}") from error


def split(words: Sequence[str]) -> tuple[dict[str, str], str, Sequence[str]]:
    """Return our flags, the program and its arguments; raises UsageError."""
    if "--" not in words:
        raise UsageError(_USAGE)
    end = list(words).index("--")
    flags = arguments.read_flags(words[:end])
    rest = words[end + 1 :]
    if not rest or not rest[0].startswith("/") or flags.keys() - {"on_skew"}:
        raise UsageError(_USAGE)
    return flags, rest[0], rest[1:]


def release_of(program: str, real: str) -> ForeignRelease:
    """Return the release that ``real``, where ``program`` leads, lies in; raises UsageError."""
    path, is_file = real, True
    while path != "/":
        root, _, name = path.rpartition("/")
        for slot in _SLOTS:
            if name.endswith(slot):
                return ForeignRelease(root, name, name.removesuffix(slot), is_file=is_file)
        path, is_file = root or "/", False
    raise UsageError(f"{program} does not lead into a slot (a path that ends in blue or green)")
