"""What is left out of a release and imported all the same stops the build."""

from collections.abc import Mapping

import pytest

from bundle import reach
from bundle.cache import NO_CACHE, Cache
from bundle.errors import PackageError

FOLDERS = ("lib/hostsync", "python/lib/python3.11")
LEFT_OUT = frozenset({"gone"})


def check(modules: Mapping[str, str], cache: Cache = NO_CACHE) -> None:
    """Check a release of these modules: `hostsync/cli` is one of our own."""
    sources = {f"lib/hostsync/{name}.py": body for name, body in modules.items()}
    shim = {"python/lib/python3.11/json/__init__.py": "import json.decoder"}
    shim["python/lib/python3.11/json/decoder.py"] = "from gone import x"
    encoded = {name: body.encode() for name, body in {**sources, **shim}.items()}
    reach.check(encoded, FOLDERS, LEFT_OUT, cache)


@pytest.mark.parametrize(
    "body",
    [
        "import gone",
        "import gone.part as other",
        "from gone import part",
        "def late():\n    import gone",
        "class A:\n    from gone import part",
        "if True:\n    import gone",
        "try:\n    import gone\nexcept OSError:\n    pass",
        "try:\n    import gone\nexcept (AttributeError, KeyError):\n    pass",
        "try:\n    pass\nfinally:\n    import gone",
        "import json",
        "from json import decoder",
    ],
)
def test_an_import_of_what_is_left_out_is_refused(body: str) -> None:
    with pytest.raises(PackageError, match="imports gone, which the release leaves out"):
        check({"hostsync/cli": body})


@pytest.mark.parametrize(
    "body",
    [
        "import os, gone_by_another_name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gone",
        "if __name__ == '__main__':\n    import gone",
        "try:\n    import gone\nexcept ImportError:\n    gone = None",
        "try:\n    import gone\nexcept (OSError, ModuleNotFoundError):\n    gone = None",
        "try:\n    import gone\nexcept:\n    gone = None",
        "try:\n    import os\nexcept ImportError:\n    import gone as os",
        "from .gone import x",
    ],
)
def test_what_a_process_does_without_may_be_left_out(body: str) -> None:
    check({"hostsync/cli": body})


def test_others_are_followed_where_they_are_imported_and_at_their_top_only() -> None:
    late = "def never():\n    import gone"
    check({"hostsync/cli": "import library", "library": late, "unused": "import gone"})
    with pytest.raises(PackageError, match=r"lib/hostsync/library\.py imports gone"):
        check({"hostsync/cli": "def late():\n    import library", "library": "import gone"})


def test_imports_relative_to_a_package_are_followed() -> None:
    check({"hostsync/a/b": "from . import c", "hostsync/a/c": ""})
    with pytest.raises(PackageError, match=r"hostsync/c\.py imports gone"):
        check({"hostsync/a/b": "from ..c import x", "hostsync/c": "import gone"})
    library = {"library/__init__": "from .c import x", "library/c": "import gone"}
    with pytest.raises(PackageError, match=r"library/c\.py imports gone"):
        check({"hostsync/a": "import library", **library})


def test_what_was_read_before_is_followed_as_what_is_read_now() -> None:
    body = "import os, library\ntry:\n    import gone\nexcept ImportError:\n    from . import x"
    good = {"hostsync/cli": body, "library": ""}
    cache = Cache({})
    for _ in range(2):
        check(good, cache)
        with pytest.raises(PackageError, match=r"lib/hostsync/library\.py imports gone"):
            check({**good, "library": "import gone"}, cache)
        assert len(cache.used) == 3


def test_what_was_read_elsewhere_is_read_anew() -> None:
    late, near = "def late():\n    import gone", "from . import x"
    cache = Cache({})
    check({"hostsync/cli": "import library", "library": late}, cache)
    with pytest.raises(PackageError, match=r"hostsync/cli\.py imports gone"):
        check({"hostsync/cli": late}, cache)
    check({"hostsync/a/b": near, "hostsync/a/x": ""}, cache)
    with pytest.raises(PackageError, match=r"hostsync/c/x\.py imports gone"):
        check({"hostsync/c/b": near, "hostsync/c/x": "import gone"}, cache)
