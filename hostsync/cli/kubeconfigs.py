"""The command that writes kubelet's kubeconfig."""

from __future__ import annotations

from pathlib import Path

import click

from hostsync.cli.session import Session, pass_session

KUBECONFIG = Path("/var/lib/kubelet/kubeconfig")
_PLUGIN = "hostsync-credential"


@click.command()
@click.option("--server", metavar="URL", required=True, help="The API server, https://HOST[:PORT].")
@click.option(
    "--ca-file", metavar="FILE", required=True, type=click.Path(path_type=Path),
    help="The API server's authority, PEM; it is written into the kubeconfig.",
)  # fmt: skip
@click.option(
    "--path", metavar="FILE", default=KUBECONFIG, show_default=True,
    type=click.Path(path_type=Path), help="Where to write it, or - for stdout.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Even if another kubeconfig stands there.")
@click.argument("plugin_arguments", nargs=-1, type=click.UNPROCESSED)
@pass_session
def kubeconfig(
    session: Session,
    server: str,
    ca_file: Path,
    path: Path,
    plugin_arguments: tuple[str, ...],
    *,
    replace: bool,
) -> None:
    """Write a kubelet kubeconfig whose user is the credential plugin (mode 0600, repeatable).

    What follows -- goes to the plugin; without --server-id there, the one of AKS. For a machine,
    run it inside: this command writes where it runs, and into no rootfs.
    """
    from hostsync.config import AKS_SERVER_ID
    from hostsync.errors import ConfigError
    from hostsync.kubeconfig import Kubeconfig, put, read_authority

    words = plugin_arguments
    if not any(word.partition("=")[0] == "--server-id" for word in words):
        words = ("--server-id", AKS_SERVER_ID, *words)
    host = session.host
    commands = (each.path for each in host.agent.commands if each.path.name == _PLUGIN)
    content = Kubeconfig(
        server=server,
        authority=read_authority(ca_file),
        command=next(commands, Path("/usr/local/bin") / _PLUGIN),
        arguments=words,
    ).render()
    if str(path) == "-":
        click.echo(content.decode(), nl=False)
        return
    if path.resolve().is_relative_to(session.wired.config.machines.root.resolve()):
        raise ConfigError(
            f"{path} is in a machine, whose guest may have put a link there",
            remedy="run this command inside the machine",
        )
    changed = put(host.fs, path.absolute(), content, replace=replace)
    session.say(f"{path} {'written' if changed else 'is as it should be'}", written=changed)
