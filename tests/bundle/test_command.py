from pathlib import Path

import pytest

from bundle.__main__ import main
from tests.bundle.conftest import write_source


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--version", "latest"], "'latest' is not a version; use a form like"),
        (["--source", "/nowhere"], "cannot read /nowhere/hostsync/_version.py"),
        (["--python", "/bin/true"], "/bin/true did not answer as a Python interpreter"),
        (["--python", "/nowhere"], "/nowhere did not answer as a Python interpreter"),
        (["--keep-tree", "/usr"], "/usr exists; name a directory for --keep-tree that does not"),
    ],
)
def test_a_refusal_is_one_line_with_a_remedy_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    source = write_source(tmp_path / "source")
    status = main(["--source", str(source), "--output", str(tmp_path / "out"), *arguments], {})
    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err.startswith(f"bundle: {complaint}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "99999999999"])
def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main([], {"SOURCE_DATE_EPOCH": text}) == 1
    assert "set it to seconds since 1970" in capsys.readouterr().err


def test_a_wrong_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--fast"], {})
    assert stopped.value.code == 2
    assert "usage: python -m bundle" in capsys.readouterr().err
