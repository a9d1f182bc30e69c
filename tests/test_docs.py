"""The documentation keeps its word: tests it cites exist, links resolve, nothing is left out."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from credential_shim import arguments, configuration, layers, principal
from hostsync import config, trust, workers
from hostsync.cli.main import cli
from hostsync.errors import ExitCode, Reason
from hostsync.record import Phase
from hostsync.state import Outcome

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GUARANTEES = ROOT / "docs/guarantees.md"
CONFIGURATION = ROOT / "docs/configuration.md"
OPERATIONS = ROOT / "docs/operations.md"
WIDTH = 100
FAULTS = 75
"""How many faults of systems like this one are numbered in the guarantees."""

_CITED = re.compile(r"`((?:tests|e2e)/[\w/]+\.py)::(\w+)`")
_TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_TABLES: dict[str, type[msgspec.Struct]] = {
    "top level": config._File,
    "agents": config._AgentTable,
    "machines": workers.MachinesTable,
    "download": trust.DownloadTable,
    "release": trust.ReleaseTable,
}


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The fragments that a page's headings make."""
    headings = _HEADING.findall(path.read_text())
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


def options() -> Iterator[tuple[str, str]]:
    """Every option a person may give, with the command it belongs to."""
    commands = {"hostsync": cli, **cli.commands}
    for name, command in commands.items():
        if not command.hidden:
            for option in command.params:
                if isinstance(option, click.Option) and not option.hidden:
                    yield name, option.opts[0]


def test_every_test_that_a_guarantee_cites_exists() -> None:
    cited = _CITED.findall(GUARANTEES.read_text())
    assert len(cited) > 100
    known = {
        (file, name)
        for file in {file for file, _ in cited}
        for name in _TEST.findall((ROOT / file).read_text())
    }
    assert [f"{file}::{name}" for file, name in cited if (file, name) not in known] == []


def test_every_invariant_is_a_guarantee() -> None:
    promised = set(re.findall(r"^\*\*(I\d+)\*\*", GUARANTEES.read_text(), re.MULTILINE))
    assert promised == {f"I{number}" for number in range(1, 11)}


def test_every_fault_is_covered_or_said_to_be_missing() -> None:
    told = {
        number
        for first, last in re.findall(
            r"\b[ABCD](\d+)(?:\u2013[ABCD]?(\d+))?", GUARANTEES.read_text()
        )
        for number in range(int(first), int(last or first) + 1)
    }
    assert told == set(range(1, FAULTS + 1))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        assert "://" not in link, f"{link}: only what is in the repository is linked"
        name, _, fragment = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_prose_is_wrapped(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    long = [
        line
        for line in prose.splitlines()
        if len(line) > WIDTH and not line.startswith(("|", "    ", "- `"))
    ]
    assert long == []


@pytest.mark.parametrize("table", _TABLES)
def test_every_key_of_the_configuration_is_documented(table: str) -> None:
    text = CONFIGURATION.read_text()
    keys = [each.name for each in msgspec.structs.fields(_TABLES[table])]
    containers = {"agents": "`[agents.NAME]`"} | {
        name: f"`[{name}]`" for name in ("machines", "download", "release", "operations")
    }
    assert [key for key in keys if containers.get(key, f"| `{key}` |") not in text] == []


def test_every_flag_of_the_plugin_is_documented() -> None:
    text = CONFIGURATION.read_text()
    flags = [*arguments._VALUE_FLAGS, *arguments._UNUSED_VALUE_FLAGS, *arguments._SWITCHES]
    variables = [
        arguments._LOGIN_VARIABLE, *layers.CLIENT_ID_VARIABLES, *principal.SECRET_VARIABLES,
        *principal.CERTIFICATE_VARIABLES, *principal.PASSWORD_VARIABLES,
        principal.TENANT_VARIABLE, principal.AUTHORITY_VARIABLE, principal.FEDERATED_VARIABLE,
    ]  # fmt: skip
    assert [f for f in flags if not re.search(rf"`{re.escape(f)}[ `]", text)] == []
    assert [f for f in [*arguments._SECRET_FLAGS, *variables] if f"`{f}`" not in text] == []


def test_every_key_of_the_plugins_file_and_every_cloud_is_documented() -> None:
    text = CONFIGURATION.read_text()
    assert [
        word for word in (*configuration.KEYS, *principal.CLOUDS) if f"`{word}`" not in text
    ] == []


def test_every_command_and_option_is_shown_somewhere() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    words = [name for name, command in cli.commands.items() if not command.hidden]
    assert [word for word in words if not re.search(rf"hostsync [^\n]*\b{word}\b", text)] == []
    assert [f"{command} {option}" for command, option in options() if option not in text] == []


def test_every_reason_and_outcome_has_its_advice() -> None:
    rows = [line for line in OPERATIONS.read_text().splitlines() if line.startswith("|")]
    told = {word for row in rows for word in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    assert {str(reason) for reason in Reason} <= told
    glossary = (ROOT / "docs/glossary.md").read_text()
    assert [outcome for outcome in Outcome if f"`{outcome}`" not in glossary] == []


def test_every_exit_status_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [code for code in ExitCode if f"| {int(code)} |" not in text] == []


def test_every_phase_of_an_order_is_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert [phase for phase in Phase if str(phase) not in text] == []


def test_every_layer_is_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    package = ROOT / "hostsync"
    modules = {path.stem for path in package.iterdir() if path.suffix in (".py", "")}
    private = {name for name in modules if name.startswith(("_", "py"))} | {"share"}
    assert sorted(name for name in modules - private if f"`{name}`" not in text) == []
