"""The program ``clusterconform``: a command's module is imported when it is called, so that help is quick."""

import importlib
from difflib import get_close_matches
from typing import Final

import click

from clusterconform.cli.live import UnavailableError

_INTERRUPTED: Final = 130

# The function has the name of its module, which lives in this room.
_COMMANDS: Final = {
    "check": "Hold manifests to the contract, without a cluster.",
    "completion": "Print the completion script for a shell.",
    "doctor": "Look for what makes the contract fail, and say what to do.",
    "explain": "Tell why a node is treated as it is.",
    "ledger": "Print what was reaped, refused and held.",
    "manifests": "Print what is to be applied to a cluster.",
    "prune": "Take our marks off all nodes, for an uninstall.",
    "status": "Show the fleet at a glance.",
    "matrix": "Print what each backend promises.",
    "reap": "Approve the deletion of one dead agent that a guard holds.",
    "run": "Run the operator.",
    "sandbox": "Start a real control plane with a mixed fleet on this machine, and the operator on it.",
    "simulate": "Print what the operator would do with these objects.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"clusterconform.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Click names the nearest option, but not the nearest command.
        near = get_close_matches(args[0], _COMMANDS, n=1) if args[0] not in _COMMANDS else []
        if near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Call the command; what it cannot have of a cluster is one sentence and exit code 2."""
        try:
            return super().invoke(ctx)
        except UnavailableError as error:
            click.echo(f"clusterconform: {error}", err=True)
            raise click.exceptions.Exit(2) from error
        except KeyboardInterrupt as error:
            # Answers are printed at once, at the end, so that nothing half-written stands there.
            raise click.exceptions.Exit(_INTERRUPTED) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self.list_commands(ctx)])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  clusterconform sandbox                    # try it on this machine
  clusterconform check manifests/           # without a cluster
  clusterconform status                     # on the cluster of your kubeconfig
Docs: docs/cli.md""",
)
@click.version_option(package_name="clusterconform")
def main() -> None:
    """Keep the nodes of a mixed k3s and virtual-kubelet cluster to their contract."""
