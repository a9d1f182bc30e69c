from __future__ import annotations

import gzip
import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from hostsync.errors import Reason, Refused
from hostsync.fs import Disk
from hostsync.model import Digest, SlotKind, tree_digest
from hostsync.release import Form, open_candidate, scan
from tests.hostsync.release.conftest import inspected
from tests.hostsync.release.tarball import (
    AGENT,
    FOREIGN,
    GNU,
    HOST,
    RELEASE,
    SCRIPT,
    TOP,
    Raw,
    bundle,
    directory,
    elf,
    file,
    packed,
    pax,
    program,
)

BUNDLE, FILE = SlotKind.BUNDLE, SlotKind.FILE


def refused(path: Path, kind: SlotKind = BUNDLE) -> Refused:
    with pytest.raises(Refused) as caught:
        inspected(path, kind)
    assert caught.value.brief.startswith(f"{path}: ")
    return caught.value


def test_an_archive_and_its_unpacked_directory_are_the_same_content(
    archive: Path, unpacked: Path
) -> None:
    packed_one, loose_one = inspected(archive), inspected(unpacked)
    assert packed_one.content_digest == loose_one.content_digest == tree_digest(scan(unpacked))
    assert packed_one.source_digest.hex == sha256(archive.read_bytes()).hexdigest()
    assert loose_one.source_digest == loose_one.content_digest
    assert (packed_one.form, loose_one.form) == (Form.ARCHIVE, Form.DIRECTORY)
    assert packed_one.size == loose_one.size == sum(len(d or b"") for _, d in RELEASE.values())
    assert packed_one.members == loose_one.members == len(RELEASE)
    assert packed_one.arch == loose_one.arch == HOST


def test_a_single_file_has_the_digest_of_its_bytes_in_either_form(tmp_path: Path) -> None:
    program_path, archive = tmp_path / "agent", tmp_path / "download"
    program_path.write_bytes(elf(HOST))
    archive.write_bytes(packed(Raw(name=TOP.encode(), data=elf(HOST))))
    plain, wrapped = inspected(program_path, FILE), inspected(archive, FILE)
    assert plain.source_digest == plain.content_digest == wrapped.content_digest
    assert plain.content_digest.hex == sha256(elf(HOST)).hexdigest()
    assert (plain.form, wrapped.form) == (Form.FILE, Form.ARCHIVE)
    assert plain.members == wrapped.members == 1


def test_the_order_and_framing_of_an_archive_do_not_change_its_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(bundle(directory("lib"), file("lib/x")))
    # Reversed, the directories only implied, a GNU header, annotations, a padded end.
    gnu = Raw(name=f"{TOP}/lib/x".encode(), data=b"x", mode=b"    600", magic=GNU)
    note = pax(("mtime", "1.5"), ("path", f"{TOP}/bin/{AGENT}"), ("size", str(len(SCRIPT))))
    two.write_bytes(gzip.compress(gzip.decompress(packed(gnu, note, program())) + bytes(10240)))
    assert inspected(one).content_digest == inspected(two).content_digest


@pytest.mark.parametrize("form", ["gnu", "ustar", "posix"])
def test_an_archive_made_by_the_tar_of_the_system_is_taken_in_each_of_its_formats(
    tmp_path: Path, unpacked: Path, form: str
) -> None:
    top = unpacked.rename(tmp_path / TOP)
    made = tmp_path / "made.tar.gz"
    subprocess.run(
        ["tar", "-czf", made, f"--format={form}", "-C", tmp_path, TOP],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert inspected(made).content_digest == inspected(top).content_digest


def test_a_name_of_more_than_100_bytes_is_read_from_the_ustar_prefix(tmp_path: Path) -> None:
    path = tmp_path / "a"
    prefix = f"{TOP}/{'p' * 90}".encode()
    long = Raw(name=b"n" * 100, prefix=prefix, data=b"x")
    path.write_bytes(packed(program(), long))
    with open_candidate(path, agent=AGENT, kind=BUNDLE) as candidate:
        candidate.stage(tmp_path / "blue", Disk())
    assert (tmp_path / "blue" / ("p" * 90) / ("n" * 100)).read_bytes() == b"x"


def test_a_link_to_a_candidate_is_followed_once(tmp_path: Path, source: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    assert inspected(link) == inspected(source)


def test_an_installed_release_is_a_candidate_without_its_seal(unpacked: Path, target: Path) -> None:
    unsealed = inspected(unpacked)
    (unpacked / "RELEASE").write_bytes(b"agent=hostsync\n")
    assert inspected(unpacked) == unsealed
    with open_candidate(unpacked, agent=AGENT, kind=BUNDLE) as candidate:
        candidate.stage(target, Disk())
    assert not (target / "RELEASE").exists()


@pytest.mark.parametrize("name", ["release", "RELEASE"])
def test_a_directory_with_something_else_in_the_place_of_the_seal_is_refused(
    unpacked: Path, name: str
) -> None:
    (unpacked / name).mkdir()
    assert "slot's seal" in refused(unpacked).brief


def test_a_directory_is_held_to_the_rules_of_archives(unpacked: Path) -> None:
    native = unpacked / "lib/native.so"
    native.chmod(0o666)
    assert "writable by everyone" in refused(unpacked).brief
    native.chmod(0o4755)
    assert "mode 4755" in refused(unpacked).brief
    native.chmod(0o755)
    native.write_bytes(elf(FOREIGN))
    assert refused(unpacked).reason is Reason.WRONG_ARCHITECTURE
    native.unlink()
    native.symlink_to("/lib/native.so")
    assert "'lib/native.so' is a symbolic link" in refused(unpacked).brief
    native.unlink()
    (unpacked / "LIB").mkdir()
    assert "one name, twice" in refused(unpacked).brief


def test_a_path_that_is_missing_or_no_release_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for name, what in {
        "missing": "No such file",
        "loop": "symbolic links",
        "fifo": "device, FIFO or socket",
        "empty": f"'bin/{AGENT}' is missing",
        "a\0b": "not a path",
    }.items():
        error = refused(tmp_path / name)
        assert error.reason is Reason.BAD_CANDIDATE
        assert what in error.brief
    assert "device" in refused(Path("/dev/null")).brief


def test_a_form_the_slot_does_not_hold_is_refused(tmp_path: Path, unpacked: Path) -> None:
    assert "holds a file" in refused(unpacked, FILE).brief
    script = tmp_path / "script"
    script.write_bytes(SCRIPT)
    assert "holds a directory" in refused(script, BUNDLE).brief


@pytest.mark.parametrize("data", [b"", b"text", b"\x7fELF", elf(FOREIGN)])
def test_a_plain_file_that_cannot_run_here_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "agent"
    path.write_bytes(data)
    wrong = Reason.WRONG_ARCHITECTURE if data.startswith(b"\x7f") else Reason.BAD_CANDIDATE
    assert refused(path, FILE).reason is wrong


def test_bytes_with_another_digest_than_expected_are_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "download"
    path.write_bytes(b"\x1f\x8b and then something a parser should never meet")
    wrong = Digest("0" * 64)
    found = sha256(path.read_bytes()).hexdigest()
    with (
        pytest.raises(Refused, match=f"its SHA-256 is {found}, ordered was {wrong}"),
        open_candidate(path, agent=AGENT, kind=BUNDLE, expected=wrong),
    ):
        pass


def test_a_candidate_with_the_expected_digest_is_taken_in_every_form(source: Path) -> None:
    expected = inspected(source).source_digest
    with open_candidate(source, agent=AGENT, kind=BUNDLE, expected=expected) as candidate:
        assert candidate.inspect().source_digest == expected


def test_a_directory_with_other_content_than_expected_is_refused(unpacked: Path) -> None:
    with (
        pytest.raises(Refused, match="ordered was 000000"),
        open_candidate(unpacked, agent=AGENT, kind=BUNDLE, expected=Digest("0" * 64)) as candidate,
    ):
        candidate.inspect()
