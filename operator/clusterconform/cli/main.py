"""The program ``clusterconform``: its commands are imported when they are called, so that help is quick."""

import importlib
import sys

import click

_COMMANDS = {
    "matrix": ("clusterconform.cli.matrix", "matrix"),
    "run": ("clusterconform.cli.run", "run"),
    "sandbox": ("clusterconform.cli.sandbox", "sandbox"),
    "simulate": ("clusterconform.cli.simulate", "simulate"),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="clusterconform")
def main() -> None:
    """Keep the nodes of a mixed k3s and virtual-kubelet cluster to their contract."""


if __name__ == "__main__":
    sys.exit(main())
