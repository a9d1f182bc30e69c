"""The world outside the host under test, as small services which run with Debian's own Python.

Nothing here imports anything but the standard library and `cryptography`, so the same files run in
the lab's containers (bind-mounted, read-only) and in the fast unit tests of `tests/e2e_world`.
"""
