"""The lab's records become typed values, and its images are named by what is in them."""

import json
import subprocess
from pathlib import Path

from e2e.ground import SOURCE
from e2e.images import Recipe, build_command
from e2e.kubeconfig import kubeconfig
from e2e.records import Beat, Entry, missed, parse_beats, parse_exchanges

BEAT = '{"n":%d,"start":1,"end":2,"ok":%s,"rc":0,"release":"1.0","slot":"blue","message":""}\n'


def test_a_line_still_being_written_is_left_out() -> None:
    text = BEAT % (7, "true") + (BEAT % (8, "true"))[:30]
    assert parse_beats(text) == (
        Beat(n=7, start=1, end=2, ok=True, rc=0, release="1.0", slot="blue", message=""),
    )


def test_failed_beats_and_seconds_without_a_beat_are_both_missed() -> None:
    beats = parse_beats(
        "".join(BEAT % (n, ok) for n, ok in ((1, "true"), (2, "false"), (4, "true"), (5, "true")))
    )
    assert missed(beats) == (2, 3)
    assert missed(()) == ()


def test_a_request_log_may_grow_columns() -> None:
    row = {"time": 1.5, "took": 0.1, "verb": "GET", "path": "/", "status": 200, "agent": "a"}
    (entry,) = parse_exchanges(json.dumps(row | {"query": {"a": "b"}, "later": 1}) + "\n")
    assert (entry.status, entry.query, entry.token) == (200, {"a": "b"}, "")


def test_journal_entries_are_read_even_when_they_are_not_text() -> None:
    row = {"__REALTIME_TIMESTAMP": "1500000", "_SYSTEMD_UNIT": "a.service", "PRIORITY": "3"}
    entry = Entry.parse(json.dumps(row | {"MESSAGE": [104, 105, 255]}))
    assert entry == Entry(time=1.5, unit="a.service", priority=3, message="hi\ufffd")


def test_images_are_named_by_their_packages_suite_and_commands() -> None:
    keys = {
        Recipe().key,
        Recipe(suite="trixie").key,
        Recipe(host=("systemd-container",)).key,
        Recipe(world=("python3",)).key,
    }
    assert len(keys) == 4
    assert Recipe().key == Recipe().key


def test_packages_are_added_from_inside_the_new_tree_only() -> None:
    adding = [word for word in build_command(Recipe(), Path("/t")) if "apt-get" in word]
    assert len(adding) == 2
    assert all('chroot "$1" env' in word for word in adding)


def test_the_kubeconfig_runs_the_shim_as_kubelet_would() -> None:
    user = json.loads(kubeconfig(b"pem"))["users"][0]["user"]["exec"]
    assert user["command"] == "/usr/local/bin/hostsync-credential"
    assert user["args"][:2] == ["get-token", "--server-id"]
    assert (user["interactiveMode"], user["provideClusterInfo"]) == ("Never", False)


def test_the_shell_programs_of_the_lab_parse() -> None:
    for shell, name in (
        ("sh", "boot-host"),
        ("sh", "machine/usr/local/libexec/kubelet"),
        ("bash", "stub-shim"),
    ):
        subprocess.run([shell, "-n", SOURCE / name], check=True)
