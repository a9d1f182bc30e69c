"""Everything that can stop a build, each with what to do about it.

BundleError
├── ElfError          a file is not an ELF object this builder can read or change
├── InterpreterError  no CPython that a bundle can be made from
├── LibraryError      a shared library is missing or ambiguous
├── PackageError      a Python package or dependency is missing or unusable
├── BytecodeError     a module does not compile
├── ArchiveError      an archive breaks the release contract
└── OptionError       the caller asked for something that cannot be
"""


class BundleError(Exception):
    """A build or repack was refused; nothing was left at the destination.

    `problem` names the object and why it was refused, `remedy` says what to do.
    """

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


class ElfError(BundleError):
    """A file is not an ELF object that this builder can read or change."""


class InterpreterError(BundleError):
    """The interpreter named, or the running one, cannot be put into a bundle."""


class LibraryError(BundleError):
    """A shared library that an ELF object needs is missing or ambiguous."""


class PackageError(BundleError):
    """A Python package or one of its requirements is missing or unusable."""


class BytecodeError(BundleError):
    """A Python module does not compile with the interpreter of the bundle."""


class ArchiveError(BundleError):
    """An archive, or a tree that should become one, breaks the release contract."""


class OptionError(BundleError):
    """An option has a value that no bundle can have."""
