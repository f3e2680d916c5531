"""`shoal token`: who may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import epilog, json_option
from shoal.cli.session import open_session

if TYPE_CHECKING:
    from shoal.model.wire import TokenView
    from shoal.render.look import Look

ROLES = ("viewer", "member", "maintainer", "admin", "join")


@click.group("token", epilog=epilog("shoal token create user/anna --project default", "shoal token list", "shoal token revoke ID"))
def token() -> None:
    """Make, list and revoke tokens. A token's text is shown once, when it is made."""


_SUBMITS = ("member", "maintainer")
"""Roles of people who submit jobs and have no power over the machines themselves."""


@token.command("create", epilog=epilog("shoal token create user/anna --role member --life 90d", "shoal token create service/ci -q > token"))
@click.argument("principal", metavar="user/NAME|service/NAME")
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True, help="What it may do.")
@click.option("--for-project", "project", metavar="NAME", help="Only in this project; without it in every one.")
@click.option("--unix-user", metavar="NAME", help="The user that its jobs run as.")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@click.option("--life", metavar="LENGTH", help="How long it holds, for example 90d; until revoked by default.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the token.")
@json_option("the TokenMade")
def create(principal: str, quiet: bool, as_json: bool, **ask: Any) -> None:
    """Make a token and print it. It is not shown again: only its hash is kept."""
    from shoal.model.wire import TokenAsk

    session = open_session(as_json)
    made = session.api.tokens.create(TokenAsk(principal=principal, **ask))
    if quiet or not as_json:
        session.out(made.text)
        if not quiet:
            session.note(f"token {made.token.id} for {principal}; it is not shown again. Use it as $SHOAL_TOKEN")
            if made.token.role in _SUBMITS and made.token.unix_user is None:
                session.note("its jobs run as the user of each node's agent, root where that is root; --unix-user NAME gives them another")
    else:
        session.row(made, "")


@token.command("list", epilog=epilog("shoal token list"))
@json_option("a list of TokenView")
def list_tokens(as_json: bool) -> None:
    """List tokens: whose they are and how long they hold, never their text."""
    session = open_session(as_json)
    tokens = session.api.tokens.list()
    session.show(tokens, lambda look: _table(tokens, look))


def _table(tokens: tuple[TokenView, ...], look: Look) -> list[str]:
    from shoal.render.table import Column, table

    rows = [
        (t.id, t.principal, t.role, t.project or "all", t.unix_user or "", look.ago(t.created_ms), _end(t, look), t.note) for t in tokens
    ]
    titles = ("ID", "PRINCIPAL", "ROLE", "PROJECT", "UNIX USER", "MADE", "ENDS")
    return table([*(Column(title) for title in titles), Column("NOTE", least=8)], rows, look)


def _end(token: TokenView, look: Look) -> str:
    if token.revoked_ms is not None:
        return f"revoked {look.ago(token.revoked_ms)}"
    return look.ago(token.expires_ms) if token.expires_ms is not None else "never"


@token.command("revoke", epilog=epilog("shoal token revoke 3f9a1c"))
@click.argument("token_ids", metavar="ID...", nargs=-1, required=True)
@json_option("a {token, revoked} per line")
def revoke(token_ids: tuple[str, ...], as_json: bool) -> None:
    """Revoke tokens, at once and for good."""
    session = open_session(as_json)
    for token_id in token_ids:
        session.api.tokens.revoke(token_id)
        session.row({"token": token_id, "revoked": True}, f"token {token_id} is revoked")
