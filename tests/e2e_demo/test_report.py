"""The report says the same to people, to programs and in the picture."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from e2e.demo.report import Report
from e2e.demo.screen import WIDTH, plain
from tests.e2e_demo.stories import GOOD

BROKEN = replace(GOOD, refusals=2, load=4.0)


def leave(report: Report, directory: Path) -> None:
    """As the demonstration does; every process collects this file, and one draws."""
    from e2e.demo import __main__ as demo

    demo.leave(report, directory)


def test_the_text_names_every_promise_and_every_order_within_its_width() -> None:
    report = Report.of(GOOD)
    text = plain(report)
    assert text.count("✓") == len(report.promises)
    assert "all 13 promises kept" in text
    for act in GOOD.acts:
        assert f"{act.release} {act.title}" in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.count("\n") <= 75


def test_a_broken_promise_is_marked_with_what_was_promised() -> None:
    text = plain(Report.of(BROKEN))
    assert text.count("✗") == 1
    assert "2 (12 tokens used) (promised: 0)" in text
    assert "1 of 13 promises broken" in text
    assert "this machine was busy, load 4.0 per core" in text


def test_the_json_holds_times_from_the_first_order_and_the_verdict_on_all() -> None:
    document = json.loads(Report.of(GOOD).to_json())
    assert document["kept"] is True
    assert [order["outcome"] for order in document["orders"]] == [
        "installed", "complete", "rolled-back", "rolled-back", "refused"
    ]  # fmt: skip
    assert document["orders"][2]["began"] == 20.0
    assert document["current_on_host"][3] == {"at": 21.9, "release": "1.2.0"}
    assert all(promise["kept"] for promise in document["promises"])
    assert json.loads(Report.of(BROKEN).to_json())["kept"] is False


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the drawing library open the fonts, which it keeps open for the process's life."""
    leave(Report.of(BROKEN), tmp_path_factory.mktemp("fonts"))


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_the_report_s_files_replace_those_of_the_run_before(tmp_path: Path) -> None:
    leave(Report.of(BROKEN), tmp_path / "report")
    leave(Report.of(GOOD), tmp_path / "report")
    names = ["report.json", "timeline.png", "timeline.svg", "timeline.txt"]
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == names
    text = (tmp_path / "report/timeline.txt").read_text()
    assert "all 13 promises kept" in text
    assert "\x1b" not in text
    assert (tmp_path / "report/timeline.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_the_picture_names_lanes_releases_and_verdicts(tmp_path: Path) -> None:
    leave(Report.of(GOOD), tmp_path)
    drawn = ET.parse(tmp_path / "timeline.svg")
    words = {
        "".join(each.itertext()).strip() for each in drawn.iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "crash"} <= words
    assert {"seen inside kube1", "current on the host", "hostsync.service"} <= words
    assert {"✓ kept", "↶ rolled back", "✗ refused"} <= words
