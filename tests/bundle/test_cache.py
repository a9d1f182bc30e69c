"""A cache gives back what was kept or nothing, and is used only where nobody else can write."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bundle import bytecode, cache, compile_worker
from bundle.__main__ import parse
from bundle.cache import FILE, Cache, key_of, opened
from bundle.interpreter import Interpreter

SOURCES = {"lib/one.py": b"a = 1\n", "lib/two.py": b"import os\n"}
FORGED = b"kept"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def keep(folder: Path, **contents: bytes) -> None:
    with opened(folder) as cache:
        for name, content in contents.items():
            cache.keep(key_of(name.encode()), content)


def find(folder: Path, *names: str) -> list[bytes | None]:
    with opened(folder) as cache:
        return [cache.find(key_of(name.encode())) for name in names]


def test_what_was_kept_is_found_by_that_build_and_by_later_ones(folder: Path) -> None:
    assert find(folder, "one") == [None]
    with opened(folder) as first:
        first.keep(key_of(b"one"), b"content")
        first.keep(key_of(b"two"), b"")
        assert first.find(key_of(b"one")) == b"content"
    assert find(folder, "one", "two", "three") == [b"content", b"", None]
    keep(folder, one=b"new", three=b"more")
    assert find(folder, "one", "two", "three") == [b"new", b"", b"more"]
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, folder / FILE)] == [
        "0o700",
        "0o600",
    ]


def test_a_key_tells_parts_from_their_sum() -> None:
    parts = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"c", b"ab")]
    assert len({key_of(*each) for each in parts}) == len(parts)


@pytest.mark.parametrize("at", [0, 32, 64, 68, 74, 75, 110])
def test_what_is_damaged_is_not_found_and_gives_way_to_what_is_new(folder: Path, at: int) -> None:
    contents = {"one": b"content", "two": b"more"}
    keep(folder, **contents)
    whole = (folder / FILE).read_bytes()
    changed = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
    for damaged in (whole[:at], changed, whole[:at] + whole[at + 1 :]):
        (folder / FILE).write_bytes(damaged)
        found = find(folder, *contents)
        assert None in found
        assert set(found) <= {None, *contents.values()}
        keep(folder, **contents)
        assert find(folder, *contents) == list(contents.values())


def test_without_a_directory_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for nowhere in (None, tmp_path / "file", tmp_path / "file" / "beneath", Path("/proc/nowhere")):
        with opened(nowhere) as cache:
            cache.keep(key_of(b"one"), b"content")
            assert (cache.is_open, cache.find(key_of(b"one"))) == (False, None)


def test_a_directory_that_takes_nothing_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    folder = Path("/proc/self/task")  # one's own, and nobody can make a file there
    keep(folder, one=b"content")
    assert find(folder, "one") == [None]
    assert caplog.text.count("cache takes nothing") == 1


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_can_write_to_is_left_alone(folder: Path, mode: int) -> None:
    keep(folder, one=b"content")
    before = (folder / FILE).read_bytes()
    folder.chmod(mode)
    keep(folder, two=b"content")
    assert find(folder, "one", "two") == [None, None]
    assert [path.read_bytes() for path in folder.iterdir()] == [before]


def test_a_directory_of_another_user_is_left_alone(folder: Path) -> None:
    keep(folder, one=b"content")
    if os.geteuid() == 0:
        os.chown(folder, 65534, -1)
    with opened(folder if os.geteuid() == 0 else Path("/usr")) as cache:
        assert (cache.is_open, cache.find(key_of(b"one"))) == (False, None)


def test_a_file_that_others_can_write_to_or_that_is_a_link_is_not_used_but_replaced(
    folder: Path,
) -> None:
    keep(folder, one=b"content")
    (folder / FILE).chmod(0o660)
    assert find(folder, "one") == [None]
    keep(folder, two=b"content")
    assert find(folder, "one", "two") == [None, b"content"]
    (folder / FILE).rename(folder.parent / "elsewhere")
    (folder / FILE).symlink_to("../elsewhere")
    assert find(folder, "two") == [None]
    keep(folder, one=b"content")
    assert find(folder, "one", "two") == [b"content", None]


@pytest.mark.root
def test_a_file_of_another_user_is_not_used(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    keep(folder, one=b"content")
    os.chown(folder / FILE, 65534, -1)
    assert find(folder, "one") == [None]


def test_what_was_used_longest_ago_is_forgotten_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_BYTES", 400)
    keep(folder, one=bytes(100))
    keep(folder, two=bytes(100))
    with opened(folder) as known:
        assert known.find(key_of(b"one")) is not None
        known.keep(key_of(b"three"), bytes(100))
    assert find(folder, "one", "two", "three") == [bytes(100), None, bytes(100)]
    assert (folder / FILE).stat().st_size <= 400


def test_builds_at_once_lose_nothing_of_one_another(folder: Path) -> None:
    with opened(folder) as first, opened(folder) as second:
        first.keep(key_of(b"one"), b"content")
        second.keep(key_of(b"two"), b"content")
    assert find(folder, "one", "two") == [b"content", b"content"]
    numbers = {f"n{number}": bytes([number]) * 10_000 for number in range(40)}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: keep(folder, **{name: numbers[name]}), numbers))
    assert find(folder, *numbers) == list(numbers.values())


def test_it_is_where_the_project_keeps_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.default_directory({}) == Path("/home/me/.cache/hostsync/bundle")
    shared = {"XDG_CACHE_HOME": "/shared"}
    assert cache.default_directory(shared) == Path("/shared/hostsync/bundle")
    own = {**shared, "HOSTSYNC_CACHE": "/own"}
    assert cache.default_directory(own) == Path("/own/bundle")
    assert parse([], own).cache == Path("/own/bundle")
    assert parse(["--no-cache"], own).cache is None


@pytest.fixture
def known() -> Cache:
    """A cache in memory."""
    return Cache({})


@pytest.fixture
def forged(known: Cache, own_interpreter: Interpreter) -> dict[str, bytes]:
    """True bytecode of SOURCES, while the cache has something else for them: it shows a hit."""
    true = bytecode.compile_sources(SOURCES, own_interpreter, known).modules
    for key in known.used:
        known.keep(key, FORGED)
    return dict(true)


def compiled(sources: dict[str, bytes], interpreter: Interpreter, known: Cache) -> dict[str, bytes]:
    return dict(bytecode.compile_sources(sources, interpreter, known).modules)


def test_a_module_compiled_before_comes_from_the_cache(
    forged: dict[str, bytes], own_interpreter: Interpreter, known: Cache
) -> None:
    more = {**SOURCES, "lib/new.py": b"b = 2\n"}
    assert forged == bytecode.compile_sources(SOURCES, own_interpreter).modules
    found = compiled(more, own_interpreter, known)
    assert {name for name in found if found[name] == FORGED} == set(SOURCES)
    assert found == compiled(more, own_interpreter, known)


@pytest.mark.slow
def test_another_source_or_name_is_compiled(
    forged: dict[str, bytes], own_interpreter: Interpreter, known: Cache
) -> None:
    for sources in ({"lib/one.py": b"a = 2\n"}, {"lib/three.py": SOURCES["lib/one.py"]}):
        true = bytecode.compile_sources(sources, own_interpreter).modules
        assert compiled(sources, own_interpreter, known) == true


@pytest.mark.slow
def test_another_interpreter_compiles_anew(
    forged: dict[str, bytes], own_interpreter: Interpreter, known: Cache, tmp_path: Path
) -> None:
    copy = tmp_path / own_interpreter.executable.name
    shutil.copy(own_interpreter.executable, copy)
    same = replace(own_interpreter, executable=copy)
    assert set(compiled(SOURCES, same, known).values()) == {FORGED}
    with copy.open("ab") as program:
        program.write(b"\0")
    assert compiled(SOURCES, same, known) == forged
    assert compiled(SOURCES, replace(own_interpreter, magic=b"new!"), known) == forged


def test_other_flags_compile_anew(
    forged: dict[str, bytes],
    own_interpreter: Interpreter,
    known: Cache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bytecode, "_FLAGS", (*bytecode._FLAGS, "-X", "utf8"))
    assert compiled(SOURCES, own_interpreter, known) == forged


def test_another_worker_compiles_anew_and_the_same_elsewhere_does_not(
    forged: dict[str, bytes],
    own_interpreter: Interpreter,
    known: Cache,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    copy = tmp_path / "worker.py"
    shutil.copy(compile_worker.__file__, copy)
    monkeypatch.setattr(compile_worker, "__file__", str(copy))
    assert set(compiled(SOURCES, own_interpreter, known).values()) == {FORGED}
    with copy.open("a") as program:
        program.write("# changed\n")
    assert compiled(SOURCES, own_interpreter, known) == forged


def test_what_does_not_compile_is_refused_each_time(
    own_interpreter: Interpreter, known: Cache
) -> None:
    bad = {"lib/bad.py": b"def :\n"}
    first = bytecode.compile_sources(bad, own_interpreter, known)
    assert first == bytecode.compile_sources(bad, own_interpreter, known)
    assert (list(first.refused), known.used) == (["lib/bad.py"], {})
