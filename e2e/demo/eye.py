"""Eyes on `current`: one on the host, one inside the machine, both looking every few milliseconds.

Facts that shaped this: bash reads the clock, the seal and its timer without starting a process, so
that looking costs about a hundredth of a core; and systemd-run expands `$` in a command's words,
so the program is a file.
"""

from e2e.demo.model import Sighting
from e2e.demo.reading import sightings
from e2e.lab import MACHINE, MACHINE_ROOT, Lab
from e2e.node import SLOT_ROOT

LOOK_SECONDS = 0.005
UNIT = "demo-eye.service"
PROGRAM = "/opt/demo-eye"
RECORD = "/var/log/demo-sightings"

_TEXT = f"""\
#!/bin/bash
# Writes down, with the time, each change of the release that `current` names here.
export LC_ALL=C
exec 2>/dev/null >>{RECORD} 9<> <(:)
last=unknown
while :; do
    seen=
    while IFS='=' read -r key value; do
        [ "$key" != version ] || seen=$value
    done <{SLOT_ROOT}/current/RELEASE
    if [ "$seen" != "$last" ]; then
        echo "$EPOCHREALTIME $seen"
        last=$seen
    fi
    # Nothing ever arrives on this pipe: the time limit is the pause.
    read -r -t {LOOK_SECONDS} -u 9
done
"""


def open_eyes(lab: Lab) -> None:
    """Start both and wait for their first look; they end with the lab."""
    start = ("systemd-run", "--quiet", "--collect", f"--unit={UNIT}")
    for root, where in (("", ()), (MACHINE_ROOT, (f"--machine={MACHINE}",))):
        lab.write(root + PROGRAM, _TEXT, mode=0o755)
        lab.host(*start, *where, PROGRAM)
        lab.host_script(f"until [ -s {root}{RECORD} ]; do sleep 0.02; done")


def seen(lab: Lab) -> tuple[tuple[Sighting, ...], tuple[Sighting, ...]]:
    """What the host's eye saw so far, and the machine's."""
    return sightings(lab.read(RECORD)), sightings(lab.read(MACHINE_ROOT + RECORD))
