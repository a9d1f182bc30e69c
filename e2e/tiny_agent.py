"""A foreign agent as one executable file: a program of a few dozen machine instructions.

It stands for an agent that hostsync did not write. With an argument that begins with `v` it
prints its version; with any other it waits for signals for ever, or ends with status 1.
"""

import struct

_LOAD_ADDRESS = 0x400000
_HEADERS = 64 + 56
_MESSAGE = 32

# argc < 2, or argv[1][0] != 'v': go to the daemon; else write(1, message, 32); exit(0).
_VERSION_CODE = bytes.fromhex(
    "488b0424 4883f802 7c2b 488b742410 803e76 7521"
    "b801000000 bf01000000 488d3522000000 ba20000000 0f05 31ff b83c000000 0f05"
)
_WAIT = bytes.fromhex("909090909090909090 b822000000 0f05 ebf7")
"""pause(2), again and again."""
_FAIL = bytes.fromhex("bf01000000 b83c000000 0f05 909090909090")
"""exit(1)."""


def tiny_agent(version: str, *, crashes: bool = False) -> bytes:
    """The bytes of an x86-64 executable that says `version` (at most 8 characters)."""
    message = f"aks-flex-node version {version}".ljust(_MESSAGE - 1).encode() + b"\n"
    if len(message) != _MESSAGE:
        raise ValueError(f"the version {version!r} is too long")
    code = _VERSION_CODE + (_FAIL if crashes else _WAIT) + message
    size = _HEADERS + len(code)
    entry = _LOAD_ADDRESS + _HEADERS
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size, 4096)
    return identity + header + segment + code
