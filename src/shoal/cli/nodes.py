"""`shoal nodes`, `cordon`, `drain`, `resume`: the machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shoal.cli.options import command, complete_node, epilog, json_option, nodes_argument, reason_option, yes_option
from shoal.cli.session import Session, open_session

if TYPE_CHECKING:
    from shoal.model.wire import NodeView
    from shoal.render.look import Look


@click.group("nodes", invoke_without_command=True, epilog=epilog("shoal nodes", "shoal nodes show n1", "shoal nodes --json"))
@json_option("a list of NodeView")
@click.pass_context
def nodes(ctx: click.Context, as_json: bool) -> None:
    """List nodes, each with a box per GPU that names the job on it; or show and remove one."""
    if ctx.invoked_subcommand is not None:
        return
    session = open_session(as_json)
    views = session.api.nodes.list()
    session.show(views, lambda look: _grid(views, look))
    if not views and not as_json:
        session.note("no nodes; `shoal up` starts some here, `shoal join` makes another machine one")


def _grid(views: tuple[NodeView, ...], look: Look) -> list[str]:
    from shoal.render.nodes import legend, node_grid

    lines = node_grid(views, look)
    return [*lines, "", legend(look)] if look.width and any(view.devices for view in views) else lines


@nodes.command("show", epilog=epilog("shoal nodes show n1"))
@click.argument("node", metavar="NODE", shell_complete=complete_node)
@json_option("the NodeView")
def show(node: str, as_json: bool) -> None:
    """Show all that is known of a node, device by device."""
    session = open_session(as_json)
    view = session.api.nodes.get(node)
    from shoal.render.nodes import node_screen

    session.show(view, lambda look: node_screen(view, look))


@nodes.command("remove", epilog=epilog("shoal nodes remove n1 --yes"))
@click.argument("node", metavar="NODE", shell_complete=complete_node)
@yes_option
@json_option("{node, removed}")
def remove(node: str, yes: bool, as_json: bool) -> None:
    """Forget a node that holds no work. Its agent, if it still runs, is turned away."""
    session = open_session(as_json)
    session.confirm(f"Forget node {node}?", yes)
    session.api.nodes.remove(node)
    session.row({"node": node, "removed": True}, f"node {node} is forgotten")


def _for_each(session: Session, names: tuple[str, ...], change: Callable[[str], NodeView]) -> None:
    for name in names:
        view = change(name)
        node = view.node
        why = f" ({node.reason.message})" if node.reason is not None and node.reason.message else ""
        session.row(view, f"node {node.id} is {node.state}{why}")


@command("cordon", "shoal cordon n1 -r 'loud fan'")
@nodes_argument
@reason_option
@json_option("a NodeView per line")
def cordon(nodes: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Give nodes no new work; what runs there goes on."""
    session = open_session(as_json)
    _for_each(session, nodes, lambda name: session.api.nodes.cordon(name, reason))


@command("drain", "shoal drain n1 n2 -r 'new driver'")
@nodes_argument
@reason_option
@json_option("a NodeView per line")
def drain(nodes: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Empty nodes: no new work, and what runs comes to its end."""
    session = open_session(as_json)
    _for_each(session, nodes, lambda name: session.api.nodes.drain(name, reason))


@command("resume", "shoal resume n1")
@nodes_argument
@reason_option
@json_option("a NodeView per line")
def resume(nodes: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Give nodes work again, after a cordon or a drain."""
    session = open_session(as_json)
    _for_each(session, nodes, lambda name: session.api.nodes.resume(name, reason))
