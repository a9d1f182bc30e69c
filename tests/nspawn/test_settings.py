from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nspawn.errors import BadBind, NoSuchMachine, RootfsError, SettingsUntrusted, UnsafePath
from nspawn.settings import (
    Bind,
    apply,
    locate,
    says_no_user_namespace,
    with_binds,
    without_binds,
)

OWNER = "agent"
BIND = Path("/usr/local/lib/agent")
BLOCK = "# BEGIN agent\n\n[Files]\nBindReadOnly=/usr/local/lib/agent\n# END agent\n"

# Pieces that meet the format's edges, in any order, with any text in between.
PIECES = (
    st.sampled_from(["\n", "\r\n", "\r", " ", "\\", "\\\n", "#", "\x0b", "\u2028"])
    | st.sampled_from(["[Files]\n", "[Files]", "[Exec]\r\n", "BindReadOnly=/a\n"])
    | st.sampled_from(["# BEGIN other\n", "# END other\n", "# BEGIN agents\n", "# BEGIN\n"])
)
MARKS = st.sampled_from(
    [
        "# BEGIN agent\n",
        "# END agent\n",
        "# BEGIN agent\r\n",
        "  # END agent",
        "# BEGIN agent",
        BLOCK,
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join)
MARKED_TEXTS = st.lists(PIECES | MARKS | st.text(max_size=8), max_size=12).map("".join)
ELSEWHERE = Bind(source=Path("/var/lib/a:b"), destination=Path("/var/lib/c"))
BINDS = st.lists(
    st.sampled_from([BIND, Path("/a b"), Path("/with:colon"), Path("/back\\slash"), ELSEWHERE]),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@given(text=TEXTS, binds=BINDS)
def test_taking_the_block_out_restores_every_byte(text: str, binds: Sequence[Path | Bind]) -> None:
    assert without_binds(with_binds(text, OWNER, binds), OWNER) == text


@pytest.mark.slow
@given(text=MARKED_TEXTS, binds=BINDS)
def test_putting_the_block_in_twice_is_putting_it_in_once(
    text: str, binds: Sequence[Path | Bind]
) -> None:
    once = with_binds(text, OWNER, binds)
    assert with_binds(once, OWNER, binds) == once
    marks = [line.strip(" \t\r") for line in once.split("\n")]
    assert (marks.count("# BEGIN agent"), marks.count("# END agent")) == (1, 1)


@pytest.mark.slow
@given(text=MARKED_TEXTS)
def test_no_marker_survives_taking_the_block_out(text: str) -> None:
    left = without_binds(text, OWNER)
    assert {"# BEGIN agent", "# END agent"}.isdisjoint(
        line.strip(" \t\r") for line in left.split("\n")
    )
    assert without_binds(left, OWNER) == left


def test_the_block_stands_at_the_end_with_its_own_section() -> None:
    assert with_binds("[Exec]\nBoot=yes\n", OWNER, [BIND]) == "[Exec]\nBoot=yes\n" + BLOCK
    assert with_binds("", OWNER, [BIND]) == BLOCK


def test_a_new_list_of_binds_replaces_the_old_one() -> None:
    text = with_binds("[Exec]\n", OWNER, [BIND, Path("/old")])
    assert with_binds(text, OWNER, [BIND]) == "[Exec]\n" + BLOCK
    assert with_binds(text, OWNER, []) == "[Exec]\n"


def test_a_text_without_a_last_end_of_line_keeps_that() -> None:
    assert with_binds("[Exec]", OWNER, [BIND]) == "[Exec]\n" + BLOCK.removesuffix("\n")


def test_a_file_with_carriage_returns_gets_a_block_with_them() -> None:
    assert with_binds("[Exec]\r\n", OWNER, [BIND]) == "[Exec]\r\n" + BLOCK.replace("\n", "\r\n")


def test_another_owner_is_left_alone() -> None:
    others = BLOCK.replace("agent\n", "agent-2\n")
    assert without_binds(others + BLOCK, OWNER) == others
    assert without_binds(others, OWNER) == others


@pytest.mark.parametrize(
    ("damaged", "left"),
    [
        (BLOCK.replace("# END agent\n", "[Network]\nPrivate=no\n"), "[Network]\nPrivate=no\n"),
        (BLOCK.replace("# BEGIN agent\n", "[Exec]\n"), "[Exec]\n"),
        ("[Exec]\n# END agent\n", "[Exec]\n"),
        ("[Files]\nBind=/admin\n# END agent\n", "[Files]\nBind=/admin\n"),
        ("# BEGIN agent\n[Exec]\n" + BLOCK, "[Exec]\n"),
        (BLOCK + "[Exec]\n" + BLOCK, "[Exec]\n"),
        (BLOCK.replace("[Files]\n", "[Files]\nBind=/edited\n"), ""),
    ],
    ids=["no-end", "no-begin", "only-end", "foreign-bind", "two-begins", "two-blocks", "edited"],
)
def test_a_damaged_block_is_removed_and_what_is_not_ours_stays(damaged: str, left: str) -> None:
    assert without_binds(damaged, OWNER) == left


def test_an_open_continuation_before_the_block_is_ended_by_an_empty_line() -> None:
    lines = with_binds("[Exec]\nParameters=a \\\n", OWNER, [BIND]).split("\n")
    assert lines[2:5] == ["# BEGIN agent", "", "[Files]"]


def test_paths_are_escaped_as_systemd_reads_them() -> None:
    text = with_binds("", OWNER, [Path("/with:colon"), Path("/a b"), Path("/back\\slash")])
    assert text.split("\n")[3:6] == [
        "BindReadOnly=/with\\:colon",
        "BindReadOnly=/a b",
        "BindReadOnly=/back\\\\slash",
    ]


@pytest.mark.parametrize("path", ["/a\nb", "/a\rb", "relative", "/trailing ", "/a\udcffb", "/a\0"])
def test_paths_that_the_format_cannot_hold_are_refused(path: str) -> None:
    with pytest.raises(BadBind):
        with_binds("", OWNER, [Path(path)])


@pytest.mark.parametrize("owner", ["", "two words", "a\nb", "-x"])
def test_owners_that_could_not_be_found_again_are_refused(owner: str) -> None:
    with pytest.raises(BadBind):
        with_binds("", owner, [BIND])


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path, Path]:
    etc, run, machines = (tmp_path / name for name in ("etc", "run", "machines"))
    run.mkdir()
    machines.mkdir()
    return etc, run, machines


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lib"
    path.mkdir()
    return path


def test_the_file_in_etc_wins_over_the_one_in_run(roots: tuple[Path, Path, Path]) -> None:
    etc, run, machines = roots
    assert locate("kube1", roots).path == etc / "kube1.nspawn"
    (run / "kube1.nspawn").touch()
    (machines / "kube1.nspawn").touch()
    assert locate("kube1", roots).path == run / "kube1.nspawn"
    etc.mkdir()
    (etc / "kube1.nspawn").touch()
    assert locate("kube1", roots).path == etc / "kube1.nspawn"


def test_settings_beside_the_image_are_never_shadowed(
    roots: tuple[Path, Path, Path], source: Path
) -> None:
    (roots[2] / "kube1.nspawn").write_text("[Exec]\nPrivateUsers=no\n")
    with pytest.raises(SettingsUntrusted, match="kube1"):
        apply("kube1", OWNER, [source], roots)
    assert not roots[0].exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".host", "x" * 65])
def test_a_name_that_is_no_machines_reaches_no_file(
    roots: tuple[Path, Path, Path], name: str
) -> None:
    with pytest.raises(NoSuchMachine):
        apply(name, OWNER, [], roots)


def test_applying_writes_once_and_taking_away_leaves_no_trace(
    roots: tuple[Path, Path, Path], source: Path
) -> None:
    before = os.umask(0o077)
    try:
        assert apply("kube1", OWNER, [source], roots) is True
    finally:
        os.umask(before)
    file = roots[0] / "kube1.nspawn"
    assert f"BindReadOnly={source}" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    inode = file.stat().st_ino
    assert apply("kube1", OWNER, [source], roots) is False
    assert file.stat().st_ino == inode
    assert apply("kube1", OWNER, [], roots) is True
    assert list(roots[0].iterdir()) == []
    assert apply("kube1", OWNER, [], roots) is False


def test_a_missing_source_is_taken_out_so_that_the_machine_boots(
    roots: tuple[Path, Path, Path], source: Path
) -> None:
    roots[0].mkdir()
    file = roots[0] / "kube1.nspawn"
    file.write_bytes(b"[Exec]\r\n# caf\xe9\r\n")
    apply("kube1", OWNER, [source], roots)
    source.rmdir()
    assert apply("kube1", OWNER, [source], roots) is True
    assert file.read_bytes() == b"[Exec]\r\n# caf\xe9\r\n"


def test_a_link_of_a_configuration_tool_is_followed_and_kept(
    roots: tuple[Path, Path, Path], source: Path, tmp_path: Path
) -> None:
    roots[0].mkdir()
    (tmp_path / "real.nspawn").write_text("[Exec]\n")
    (roots[0] / "kube1.nspawn").symlink_to(tmp_path / "real.nspawn")
    assert apply("kube1", OWNER, [source], roots) is True
    assert (roots[0] / "kube1.nspawn").is_symlink()
    assert "BEGIN agent" in (tmp_path / "real.nspawn").read_text()


def test_masked_settings_are_not_replaced(roots: tuple[Path, Path, Path], source: Path) -> None:
    roots[0].mkdir()
    (roots[0] / "kube1.nspawn").symlink_to("/dev/null")
    with pytest.raises(UnsafePath):
        apply("kube1", OWNER, [source], roots)


def test_what_cannot_be_written_is_named_and_leaves_no_temporary(
    roots: tuple[Path, Path, Path], source: Path
) -> None:
    roots[0].write_text("a file where the directory should be")
    with pytest.raises((RootfsError, UnsafePath), match=r"kube1\.nspawn"):
        apply("kube1", OWNER, [source], roots)


def test_a_bind_to_another_place_names_both_and_a_colon_in_a_name_separates_nothing() -> None:
    lines = with_binds("", OWNER, [BIND, ELSEWHERE]).splitlines()
    assert lines[3:5] == [
        "BindReadOnly=/usr/local/lib/agent",
        "BindReadOnly=/var/lib/a\\:b:/var/lib/c",
    ]


def test_a_bind_to_another_place_is_left_out_without_its_source(tmp_path: Path) -> None:
    roots = (tmp_path / "etc", tmp_path / "run", tmp_path / "machines")
    source = tmp_path / "source"
    bind = Bind(source=source, destination=Path("/there"))
    assert apply("kube1", OWNER, [bind], roots) is False
    source.mkdir()
    assert apply("kube1", OWNER, [bind], roots) is True
    assert f"BindReadOnly={source}:/there\n" in (roots[0] / "kube1.nspawn").read_text()


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("[Exec]\nPrivateUsers=no\n", True),
        ("[Exec]\n PrivateUsers = FALSE \n", True),
        ("[Exec]\r\nPrivateUsers=0\r\n", True),
        ("[Exec]\nPrivateUsers=yes\n[Files]\n[Exec]\nPrivateUsers=off\n", True),
        ("[Exec]\nPrivateUsers=no\nPrivateUsers=pick\n", False),
        ("[Exec]\nPrivateUsers=no\nPrivateUsers=\n", False),
        ("[Exec]\nPrivateUsers=identity\n", False),
        ("[Exec]\n#PrivateUsers=no\n", False),
        ("[Exec]\nX=1\\\nPrivateUsers=no\n", False),
        ("[Files]\nPrivateUsers=no\n", False),
        ("PrivateUsers=no\n", False),
        ("", False),
    ],
)
def test_only_an_explicit_no_says_that_a_machine_has_the_hosts_users(
    tmp_path: Path, text: str, is_said: bool
) -> None:
    (tmp_path / "kube1.nspawn").write_bytes(text.encode())
    roots = (tmp_path, tmp_path / "run", tmp_path / "machines")
    assert says_no_user_namespace("kube1", roots) is is_said


def test_what_stands_beside_the_image_does_not_say_it(tmp_path: Path) -> None:
    roots = (tmp_path / "etc", tmp_path / "run", tmp_path)
    (tmp_path / "kube1.nspawn").write_text("[Exec]\nPrivateUsers=no\n")
    with pytest.raises(SettingsUntrusted):
        says_no_user_namespace("kube1", roots)
    assert says_no_user_namespace("kube2", roots) is False
