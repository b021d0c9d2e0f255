"""``clusterconform run``: the operator."""

import asyncio
import gc
import os
import sys
from pathlib import Path

import click

from clusterconform.cli.formats import Word
from clusterconform.contract.lease import LeaseTimings
from clusterconform.contract.settings import Bound
from clusterconform.contract.times import Duration

# How much is allocated between two collections of cyclic garbage. Nodes are many objects that live for long and
# hold no cycles: with the interpreter's 700, 10 and 10 the collector took 12 % of the CPU of a start and a mass
# drift of 3,000 nodes, with these 4 %, and the peak of memory is the same (gc.callbacks, thread CPU time).
_GC_THRESHOLDS = (10_000, 20, 20)


class _Listen(click.ParamType[tuple[str, int]]):
    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - the last port
            self.fail(f"must be HOST:PORT, such as 127.0.0.1:8080, not {value!r}", param, ctx)
        return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - an empty host asks for all


class _Seconds(click.ParamType[float]):
    name = "DURATION"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else Duration(value).seconds
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(
    epilog="""\b
Examples:
  clusterconform run --kubeconfig ~/.kube/config            # look, write nothing on any Node
  clusterconform run --bound enforce --listen 0.0.0.0:8080  # in a pod"""
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Kubeconfig file; default: KUBECONFIG, the pod's account, ~/.kube/config.",
)
@click.option("--context", help="Context of the kubeconfig; default: its current one.")
@click.option(
    "--bound",
    type=Word([bound.value for bound in Bound]),
    default=Bound.OBSERVE.value,
    show_default=True,
    help="Upper bound over all profiles; observe writes nothing on any Node.",
)
@click.option(
    "--listen",
    type=_Listen(),
    default="127.0.0.1:8080",
    show_default=True,
    help="Where /livez, /readyz and /metrics are served; port 0 takes any.",
)
@click.option(
    "--lease-duration",
    type=_Seconds(),
    default="15s",
    show_default=True,
    help="A Lease that does not change for so long is free; the same for all replicas, as the next two.",
)
@click.option(
    "--renew-deadline",
    type=_Seconds(),
    default="10s",
    show_default=True,
    help="A leader that cannot renew for so long stops.",
)
@click.option(
    "--retry-period", type=_Seconds(), default="2s", show_default=True, help="Time between two tries at the Lease."
)
@click.option(
    "--node-name",
    envvar="NODE_NAME",
    default="",
    help="The node this runs on, never reaped; default: NODE_NAME from the environment.",
)
@click.option(
    "--log-format",
    type=Word(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="auto is text on a terminal, JSON elsewhere.",
)
@click.option("--verbose", is_flag=True, help="Debug lines too.")
@click.option("--whole-stream", is_flag=True, help="Let Kopf read whole Nodes; slower, for comparison.")
def run(  # noqa: PLR0917 - click passes them by name
    kubeconfig: Path | None,
    context: str | None,
    bound: str,
    listen: tuple[str, int],
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    node_name: str,
    log_format: str,
    verbose: bool,
    whole_stream: bool,
) -> None:
    """Run the operator until SIGINT or SIGTERM.

    Of several only one acts, the holder of the Lease; the others stand by. OUTPOST_NODEGC=dry-run or off makes
    reaping milder than the profile says, never sharper.

    Exit codes: 0 stopped, 2 the cluster or the command line lacks something (one sentence says what).
    """
    # Imported here: half a second that the help of the other commands need not wait for.
    from clusterconform.effects import logs  # noqa: PLC0415
    from clusterconform.effects.connection import ConnectionConfigError  # noqa: PLC0415
    from clusterconform.effects.elector import LeadershipLostError  # noqa: PLC0415
    from clusterconform.handlers.operator import Settings, operate  # noqa: PLC0415
    from clusterconform.handlers.preflight import NotReadyError  # noqa: PLC0415

    try:
        lease = LeaseTimings(duration=lease_duration, deadline=renew_deadline, retry=retry_period)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    logs.configure(style=log_format, verbose=verbose)
    gc.set_threshold(*_GC_THRESHOLDS)
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        bound=Bound(bound),
        host=listen[0],
        port=listen[1],
        slim_stream=not whole_stream,
        lease=lease,
        node_name=node_name,
        nodegc=os.environ.get("OUTPOST_NODEGC", ""),
    )
    try:
        asyncio.run(operate(settings))
    except (ConnectionConfigError, NotReadyError) as error:
        click.echo(f"clusterconform: {error}", err=True)
        sys.exit(2)
    except LeadershipLostError:
        # What this process knew may be old now. A new one under a new name begins as a standby; it is the same
        # process to whoever started it: outside of a pod nobody else would, and in one it would cost a back-off.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    except OSError as error:
        click.echo(
            f"clusterconform: cannot listen on {listen[0]}:{listen[1]}: {error.strerror or error}", err=True
        )
        sys.exit(2)
