"""
Tokens: made, listed, revoked. The text is told once, at making; what is kept is its hash.

Called by `api`, and by composition roots at first start (`SYSTEM` asks).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from shoal.base.errors import Forbidden, Invalid, NotFound
from shoal.base.units import parse_duration_ms
from shoal.control.access import Caller, format_token, hash_token, need, project_exists
from shoal.control.answers import then
from shoal.control.lanes import RecordSubject
from shoal.model.access import Token
from shoal.model.change import ChangeSet
from shoal.model.event import AccessChanged, EventRow
from shoal.model.wire import TokenAsk, TokenMade, TokenView

if TYPE_CHECKING:
    from shoal.control.plane import Plane

SECRET_BYTES = 24
"""192 random bits: no guessing, and the hash needs no salt."""
ID_BYTES = 6


def create_token(plane: Plane, caller: Caller, ask: TokenAsk) -> Future[TokenMade]:
    """
    A new token with its text, once it is durable.

    Raises: Invalid for an unknown project or a life that is no duration; Forbidden for more than the caller has itself.
    """
    need(caller, "admin", "making a token")
    if caller.project is not None and (ask.project != caller.project or ask.role in ("node", "join")):
        raise Forbidden(f"{caller.principal} is bound to project {caller.project!r} and can make tokens for that project alone")
    if ask.project is not None and not project_exists(plane, ask.project):
        raise Invalid(f"there is no project {ask.project!r} to bind a token to")
    made = new_token(plane, ask)
    row = _row(plane, caller, made[0], "token made")
    written = plane.lanes.ask(_subject(plane, made[0].id), lambda _none: ChangeSet(put=(made[0],), events=(row,)))
    return then(written, lambda token: TokenMade(token=view_token(token or made[0]), text=made[1]))


def new_token(plane: Plane, ask: TokenAsk) -> tuple[Token, str]:
    """A token record and its text; the caller writes the one and tells the other."""
    now_ms = plane.clock.now_ms()
    text = format_token(plane.entropy(ID_BYTES).hex(), plane.entropy(SECRET_BYTES))
    token = Token(
        id=text.split("_")[1],
        hash=hash_token(text),
        principal=ask.principal,
        project=ask.project,
        role=ask.role,
        unix_user=ask.unix_user,
        note=ask.note,
        created_ms=now_ms,
        expires_ms=now_ms + _life_ms(ask.life) if ask.life else None,
    )
    return token, text


def _life_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Invalid(f"life: {error}") from error


def revoke_token(plane: Plane, caller: Caller, token_id: str) -> Future[TokenView]:
    """The token, which no longer holds. Repeating it changes nothing. Raises, by the future, NotFound."""
    need(caller, "admin", "revoking a token")

    def judge(token: Token | None) -> ChangeSet:
        found = _found(caller, token_id, token)
        if found.revoked_ms is not None:
            return ChangeSet()
        revoked = msgspec.structs.replace(found, revoked_ms=plane.clock.now_ms())
        return ChangeSet(put=(revoked,), events=(_row(plane, caller, found, "token revoked"),))

    written = plane.lanes.ask(_subject(plane, token_id), judge)
    return then(written, lambda token: view_token(_found(caller, token_id, token)))


def revoke_tokens_of(plane: Plane, principal: str) -> tuple[Token, ...]:
    """The principal's tokens that still hold, as revoked now: to be written with what takes them away."""
    held = [token for token in tuple(plane.world.tokens.values()) if token.principal == principal and token.revoked_ms is None]
    return tuple(msgspec.structs.replace(token, revoked_ms=plane.clock.now_ms()) for token in held)


def list_tokens(plane: Plane, caller: Caller) -> tuple[TokenView, ...]:
    """Every token that the caller may see, by id; without hashes."""
    need(caller, "admin", "listing tokens")
    plane.world.catch_up()
    held = sorted(plane.world.tokens.items())
    return tuple(view_token(token) for _, token in held if caller.project is None or token.project == caller.project)


def view_token(token: Token) -> TokenView:
    """The token as people may see it."""
    fields = {name: getattr(token, name) for name in TokenView.__struct_fields__}
    return TokenView(**fields)


def _subject(plane: Plane, token_id: str) -> RecordSubject[Token]:
    return RecordSubject(Token, token_id, partial(plane.world.tokens.get))


def _found(caller: Caller, token_id: str, token: Token | None) -> Token:
    if token is None or (caller.project is not None and token.project != caller.project):
        raise NotFound(f"there is no token {token_id!r}")
    return token


def _row(plane: Plane, caller: Caller, token: Token, what: str) -> EventRow:
    body = AccessChanged(what=what, subject=token.principal)
    now_ms = plane.clock.now_ms()
    return EventRow(kind="access", subject=token.id, project=token.project or "", at_ms=now_ms, body=body, actor=caller.principal)
