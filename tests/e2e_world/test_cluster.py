"""The API server in a process: it stops and starts, knows its users, and misbehaves on request."""

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.ground import find_kubectl
from e2e.world.cluster import Cluster
from e2e.world.conduct import (
    CUT_STREAMS,
    EVERY_OTHER_WRITE_CONFLICTS,
    GOOD,
    SILENT_STREAMS,
    Conduct,
    overloaded,
    slow,
)
from e2e.world.documents import section, text
from e2e.world.pki import make_authority
from e2e.world.refusals import RefusalError
from tests.e2e_world.contract.client import Answer, Client
from tests.e2e_world.contract.kinds import GROUP, Widgets, definition


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        running.define(definition("widgets", "Widget"))
        yield running


@pytest.fixture
def widgets(cluster: Cluster) -> Widgets:
    return Widgets(client=Client(cluster.kubeconfig), plural="widgets", kind="Widget")


def test_what_is_arranged_is_served_and_what_is_written_is_at_hand(
    cluster: Cluster, widgets: Widgets
) -> None:
    cluster.create("widgets", "arranged", {"mode": "Fast"}, status={"phase": "Off"})
    (shown,) = widgets.client.get(widgets.path).items
    assert shown == cluster.get("widgets", "arranged")
    assert shown["status"] == {"phase": "Off"}
    widgets.merge("arranged", {"status": {"phase": "On"}}, "status")
    assert cluster.listed("widgets")["arranged"]["status"] == {"phase": "On"}
    cluster.delete("widgets", "arranged")
    assert widgets.get("arranged").status == 404


def test_a_change_made_at_hand_is_told_to_those_who_watch(
    cluster: Cluster, widgets: Widgets
) -> None:
    key = cluster.at("widgets", "one")
    cluster.create("widgets", "one", {"mode": "Fast"})
    since = widgets.client.get(widgets.path).version
    with widgets.client.watch(widgets.path, resourceVersion=since) as events:
        cluster.registry.change(key, lambda found: found | {"spec": {"mode": "Slow"}})
        assert next(events).what == ("MODIFIED", "one")
        cluster.delete("widgets", "one")
        assert next(events).what == ("DELETED", "one")


def test_a_stop_cuts_watches_and_a_start_has_the_same_port_and_objects(
    cluster: Cluster, widgets: Widgets
) -> None:
    made = widgets.make("kept")
    url = cluster.url
    with widgets.client.watch(widgets.path, resourceVersion=made.version) as events:
        cluster.stop()
        with pytest.raises((http.client.HTTPException, OSError)):
            next(events)
    with pytest.raises(ConnectionRefusedError):
        widgets.get("kept")
    cluster.create("widgets", "meanwhile", {"mode": "Fast"})
    cluster.start()
    assert cluster.url == url
    assert widgets.get("kept").document == made.document
    with widgets.client.watch(widgets.path, resourceVersion=made.version) as events:
        (event,) = list(events)
    assert (event.type, event.object["code"]) == ("ERROR", 410)


def test_a_client_that_leaves_is_no_longer_a_watcher(cluster: Cluster, widgets: Widgets) -> None:
    with widgets.client.watch(widgets.path):
        assert cluster.registry.store.watchers() == 1
    cluster.stop()
    assert cluster.registry.store.watchers() == 0


def test_users_show_tokens_or_certificates_and_strangers_are_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    for kubeconfig in (cluster.kubeconfig, cluster.certificate_kubeconfig("node-7")):
        assert Client(kubeconfig).get("/api/v1/nodes").status == 200
    assert [each.user for each in cluster.requests()] == ["hostsync", "node-7"]
    stranger = Client(cluster.kubeconfig, token="guessed").get("/api/v1/nodes")
    assert (stranger.status, stranger.reason) == (401, "Unauthorized")
    assert Client(cluster.kubeconfig, token="").get("/api/v1/nodes").status == 401


def test_a_certificate_of_another_authority_is_not_let_in(cluster: Cluster, tmp_path: Path) -> None:
    forged = tmp_path / "forged.pem"
    forged.write_bytes(make_authority().issue_client("system:masters"))
    client = Client(cluster.kubeconfig, token="")
    client.show_certificate(forged)
    with pytest.raises((OSError, http.client.HTTPException)):
        client.get("/api/v1/nodes")


def test_kubeconfigs_are_for_their_owner_alone(cluster: Cluster) -> None:
    for kubeconfig in (cluster.kubeconfig, cluster.certificate_kubeconfig("node-7")):
        assert kubeconfig.stat().st_mode & 0o077 == 0


def test_every_other_write_to_each_object_conflicts(cluster: Cluster, widgets: Widgets) -> None:
    for name in ("one", "two"):
        widgets.make(name)
    cluster.tell(EVERY_OTHER_WRITE_CONFLICTS)

    def write(name: str, part: str = "status") -> Answer:
        return widgets.merge(name, {"status": {"phase": "On"}}, part)

    told = [write("one"), write("one"), write("two"), write("one", ""), write("two")]
    assert [each.status for each in told] == [409, 200, 409, 409, 200]
    assert told[0].reason == "Conflict"
    assert widgets.get("one").status == 200
    widgets.make("three")
    cluster.tell(GOOD)
    assert write("one").status == 200


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_server_says_when_to_come_back(
    cluster: Cluster, widgets: Widgets, status: int
) -> None:
    cluster.tell(overloaded(status, 7))
    refused = widgets.client.get(widgets.path)
    assert refused.status == status
    assert section(refused.document, "details") == {"retryAfterSeconds": 7}
    assert refused.retry_after == "7"


def test_a_watch_is_cut_in_the_middle_of_an_event(cluster: Cluster, widgets: Widgets) -> None:
    with widgets.client.watch(widgets.path) as events:
        cluster.tell(CUT_STREAMS)
        widgets.make("one")
        with pytest.raises((http.client.IncompleteRead, OSError)):
            next(events)
    cluster.tell(GOOD)
    with widgets.client.watch(widgets.path) as events:
        assert next(events).what == ("ADDED", "one")


def test_so_many_watches_as_told_go_silent(cluster: Cluster, widgets: Widgets) -> None:
    cluster.tell(Conduct(stream=SILENT_STREAMS.stream, times=1))
    heard = threading.Event()
    with widgets.client.watch(widgets.path) as events:

        def listen() -> None:
            with suppress(http.client.HTTPException, OSError):
                next(events)
            heard.set()

        listener = threading.Thread(target=listen)
        listener.start()
        widgets.make("one")
        with widgets.client.watch(widgets.path) as others:
            assert next(others).what == ("ADDED", "one")
        assert not heard.is_set()
        cluster.stop()
        listener.join()


def test_a_slow_server_answers_in_the_end(cluster: Cluster, widgets: Widgets) -> None:
    cluster.tell(slow(0.05))
    assert widgets.client.get(widgets.path).status == 200
    assert cluster.requests()[-1].took >= 0.05


def test_what_the_server_would_refuse_cannot_be_arranged(cluster: Cluster) -> None:
    with pytest.raises(RefusalError, match=r"spec\.mode: Unsupported value"):
        cluster.create("widgets", "bad", {"mode": "Other"})
    with pytest.raises(LookupError, match="gadgets"):
        cluster.at("gadgets")


@pytest.mark.slow
def test_a_real_kubectl_works_with_it(cluster: Cluster, tmp_path: Path) -> None:
    manifest = tmp_path / "one.yaml"
    manifest.write_text(
        f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata:\n  name: one\nspec:\n  mode: Fast\n"
    )
    assert "created" in kubectl(cluster, "apply", "-f", str(manifest))
    manifest.write_text(manifest.read_text().replace("Fast", "Slow"))
    assert "configured" in kubectl(cluster, "apply", "-f", str(manifest))
    assert section(cluster.listed("widgets")["one"], "spec")["mode"] == "Slow"
    assert "serverside-applied" in kubectl(
        cluster, "apply", "--server-side", "--force-conflicts", "-f", str(manifest)
    )
    assert kubectl(cluster, "get", "widgets", "-o", "name").strip() == f"widget.{GROUP}/one"
    assert "condition met" in kubectl(
        cluster, "wait", "--for=condition=Established", f"crd/widgets.{GROUP}"
    )
    assert "deleted" in kubectl(cluster, "delete", "widget", "one")
    assert cluster.listed("widgets") == {}


def kubectl(cluster: Cluster, *words: str) -> str:
    home = cluster.kubeconfig.parent
    done = subprocess.run(
        [str(find_kubectl()), f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={home}", *words],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_served_in_a_process_of_its_own_it_ends_with_its_input(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "e2e.world.cluster", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        assert served.stdout is not None
        kubeconfig = Path(served.stdout.readline().strip())
        assert text(Client(kubeconfig).get("/version").document, "major") == "1"
        served.communicate()
    assert served.returncode == 0
