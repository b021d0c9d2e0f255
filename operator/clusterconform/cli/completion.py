"""``clusterconform completion``: what a shell needs to complete our words."""

import click
from click.shell_completion import get_completion_class

from clusterconform.cli.formats import Word
from clusterconform.cli.live import UnavailableError


@click.command(
    epilog="""\b
Examples:
  source <(clusterconform completion bash)
  clusterconform completion fish > ~/.config/fish/completions/clusterconform.fish"""
)
@click.argument("shell", type=Word(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    kind, root = get_completion_class(shell), context.find_root()
    if kind is None:
        raise UnavailableError(f"no completion for {shell} in this version of click")
    name = "kubectl-conform" if root.info_name == "kubectl-conform" else "clusterconform"
    click.echo(kind(root.command, {}, name, f"_{name.replace('-', '_').upper()}_COMPLETE").source())
