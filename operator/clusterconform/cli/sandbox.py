"""``clusterconform sandbox``: the demo, on a real control plane on this machine."""

import http.client
import sys
from pathlib import Path

import click

from clusterconform.cli.demo import ending
from clusterconform.cli.demo.population import LARGEST, SMALLEST
from clusterconform.cli.formats import Word
from clusterconform.sandbox.parts import NEWEST, VERSIONS

_INTERRUPTED = 130


def _absent(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a path where something is: it may be somebody's only way into a cluster."""
    if value is not None and value.exists():
        raise click.BadParameter(f"{value} exists already; name a file that does not, or remove it.")
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"{value.absolute().parent} is no directory.")
    return value


@click.command(
    epilog="""\b
Examples:
  clusterconform sandbox                  # stays until Ctrl-C
  clusterconform sandbox --once           # ends by itself; exit code 0 if every act came to its end
  clusterconform sandbox --nodes 500 --kubernetes 1.34
Docs: docs/sandbox.md"""
)
@click.option("--once", is_flag=True, help="End after the acts, in about two minutes.")
@click.option("--build-only", is_flag=True, help="Build the programs that are missing, and end.")
@click.option(
    "--nodes",
    type=click.IntRange(SMALLEST, LARGEST),
    default=40,
    show_default=True,
    help="Nodes of the fleet: agents, virtual nodes, one real kubelet, one virtual-kubelet.",
)
@click.option(
    "--kubernetes",
    type=Word(list(VERSIONS)),
    default=NEWEST.minor,
    show_default=True,
    help="Version of the control plane and of the real kubelet.",
)
@click.option(
    "--assets",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory with ready programs (kube-apiserver, ...); what it lacks is built.",
)
@click.option(
    "--kubeconfig-out",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_absent,
    help="Write the administrator's kubeconfig here too; removed at the end.",
)
def sandbox(
    *, once: bool, build_only: bool, nodes: int, kubernetes: str, assets: Path | None, kubeconfig_out: Path | None
) -> None:
    """Start a control plane on this machine, a mixed fleet and the operator; let nodes drift, heal and die.

    The first run builds the programs from pinned sources, which takes minutes; later ones take seconds.
    Everything listens on this machine only, and is stopped and removed at the end. Exit codes: 0 every act
    came to its end, 1 one did not or something could not be built or started (one sentence says what), 130
    Ctrl-C before the end of the acts.
    """
    # Imported here: half a second that the help of the other commands need not wait for.
    from clusterconform.cli.demo.screen import Screen  # noqa: PLC0415
    from clusterconform.cli.demo.shipped import ShippedFileMissingError  # noqa: PLC0415
    from clusterconform.cli.demo.story import Wishes, build, play  # noqa: PLC0415
    from clusterconform.cli.reading import UnreadableInputError  # noqa: PLC0415
    from clusterconform.sandbox.admin import RequestRefused  # noqa: PLC0415
    from clusterconform.sandbox.builder import PartUnavailable  # noqa: PLC0415
    from clusterconform.sandbox.programs import ProgramEnded  # noqa: PLC0415
    from clusterconform.sandbox.waiting import SandboxFailed  # noqa: PLC0415

    wishes = Wishes(
        nodes=nodes,
        once=once,
        assets=assets,
        kubeconfig=kubeconfig_out,
        kubernetes=VERSIONS[kubernetes],
    )
    try:
        with ending.orderly():
            failure = build(wishes, Screen()) if build_only else play(wishes, Screen())
    except KeyboardInterrupt:
        click.echo("Interrupted; everything is stopped and removed.", err=True)
        sys.exit(_INTERRUPTED)
    except (PartUnavailable, SandboxFailed, ProgramEnded) as error:
        _fail(str(error), error.log)
    except BrokenPipeError:
        raise  # nobody reads any more; click ends quietly
    except (
        ShippedFileMissingError,
        UnreadableInputError,
        RequestRefused,
        http.client.HTTPException,
        OSError,
    ) as error:
        _fail(str(error) or type(error).__name__)
    else:
        click.echo("Everything is built." if build_only else "Everything is stopped and removed.")
        if failure:
            _fail(failure)


def _fail(sentence: str, log: str = "") -> None:
    if log:
        click.echo(log, err=True)
    click.echo(f"clusterconform: {sentence}", err=True)
    sys.exit(1)
