import gzip
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bundle import gzip_member
from bundle.archive import Release, read_archive, write_archive
from bundle.errors import ArchiveError
from bundle.tree import Entry


def release(*names: str, content: bytes = b"x") -> Release:
    tree = {name: Entry(content=content, executable=name.startswith("bin/")) for name in names}
    return Release(top="hostsync-linux-amd64", tree=tree, mtime=1_000_000)


def test_members_are_sorted_plain_files_and_directories_of_root(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write_archive(release("lib/b.py", "bin/a", "lib/a/c.py"), path)
    with tarfile.open(path) as archive:
        found = [
            (member.name.removeprefix("hostsync-linux-amd64"), member.type, oct(member.mode))
            for member in archive
        ]
        owners = {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in archive.getmembers()}
    assert found == [
        ("", tarfile.DIRTYPE, "0o755"),
        ("/bin", tarfile.DIRTYPE, "0o755"),
        ("/bin/a", tarfile.REGTYPE, "0o755"),
        ("/lib", tarfile.DIRTYPE, "0o755"),
        ("/lib/a", tarfile.DIRTYPE, "0o755"),
        ("/lib/a/c.py", tarfile.REGTYPE, "0o644"),
        ("/lib/b.py", tarfile.REGTYPE, "0o644"),
    ]
    assert owners == {(0, 0, "root", "root", 1_000_000)}


def test_order_of_the_tree_and_name_of_the_file_leave_no_trace(tmp_path: Path) -> None:
    write_archive(release("lib/a", "lib/b"), tmp_path / "one.tar.gz")
    write_archive(release("lib/b", "lib/a"), tmp_path / "elsewhere" / "two.tar.gz")
    one = (tmp_path / "one.tar.gz").read_bytes()
    assert one == (tmp_path / "elsewhere" / "two.tar.gz").read_bytes()
    assert one[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written = release("bin/a", "lib/b")
    write_archive(written, tmp_path / "a.tar.gz")
    assert read_archive(tmp_path / "a.tar.gz") == written


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("lib/a", "lib/A"), "case"),
        (("lib", "lib/a"), "case, or a file is also a directory"),
        (("../a",), "not plain"),
        (("/a",), "not plain"),
        (("./a",), "not plain"),
        (("lib//a",), "not plain"),
        (("lib\\a",), "not plain"),
        (("lib/a\0b",), "not plain"),
        (("lib/\u00e9",), "not plain"),
        (("l" * 200,), "too long"),
    ],
)
def test_names_that_hosts_refuse_are_refused_and_nothing_is_written(
    tmp_path: Path, names: tuple[str, ...], complaint: str
) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_text("before")
    with pytest.raises(ArchiveError, match=complaint):
        write_archive(release(*names), path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.gz"]
    assert path.read_text() == "before"


@pytest.mark.slow
def test_more_members_than_hosts_accept_are_refused(tmp_path: Path) -> None:
    names = [f"lib/{number}" for number in range(20_000)]
    with pytest.raises(ArchiveError, match="20002 members"):
        write_archive(release(*names), tmp_path / "a.tar.gz")


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("top/link")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.addfile(member)
    with pytest.raises(ArchiveError, match="top/link, neither file nor directory"):
        read_archive(tmp_path / "a.tar.gz")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write_archive(release("lib/a"), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArchiveError, match="cannot read"):
        read_archive(path)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    size=st.sampled_from([0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000]),
    seed=st.binary(min_size=1, max_size=5000),
)
def test_compressed_data_is_one_gzip_member_that_gives_it_back(size: int, seed: bytes) -> None:
    data = (seed * (size // len(seed) + 1))[:size]
    packed = b"".join(gzip_member.compress(data))
    member = zlib.decompressobj(31)
    assert member.decompress(packed) == data
    assert (member.eof, member.unused_data) == (True, b"")
    assert gzip.decompress(packed) == data
