"""
The agent's standing with the control plane: who it is (joined once), and its epoch (registered at every start, and again when told).

Joining happens with a join token; the node's own token stays in `node.json` (0600). An agent never obeys another installation: it
compares the store's identity with the one that it joined.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shoal.agent.control import Control
from shoal.agent.home import Home, write_whole
from shoal.agent.lease import Lease
from shoal.agent.messages import Judged, Message
from shoal.base.clock import Clock
from shoal.base.errors import Refused, ShoalError
from shoal.model.codec import decode_json, encode_json
from shoal.model.node import NodeFacts
from shoal.model.wire import Held, Join, Joined, LeaseTerms, Register, Registered

log = logging.getLogger(__name__)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a join."""

    node: str
    token: str
    store_id: str
    url: str = ""

    def __repr__(self) -> str:
        return f"Identity(node={self.node!r}, store_id={self.store_id!r})"


def read_identity(path: Path) -> Identity | None:
    """None for a node that has not joined. Raises Refused for a file that cannot be read."""
    try:
        return decode_json(path.read_bytes(), Identity)
    except FileNotFoundError:
        return None
    except (OSError, ShoalError) as error:
        raise Refused(f"{path} cannot be read ({error}); remove it to join anew") from error


def join_plane(home: Home, control: Control, join: Join, url: str) -> Identity:
    """The node is known from now on; numbers of another installation's commands are forgotten."""
    return keep_identity(home, control.join(join), url)


def keep_identity(home: Home, joined: Joined, url: str) -> Identity:
    """What the answer to a join says of us, written down."""
    identity = Identity(node=joined.node.id, token=joined.token, store_id=joined.store_id, url=url)
    home.taken.unlink(missing_ok=True)
    write_whole(home.identity, encode_json(identity))
    return identity


@dataclass(slots=True)
class Session:
    """
    `epoch` is 0 until registered. `held` tells what is on the node; `renewed` is told when a renewal that was answered had been sent,
    `learned` the terms of the lease.
    """

    control: Control
    identity: Identity
    facts: Callable[[], NodeFacts]
    held: Callable[[], tuple[Held, ...]]
    post: Callable[[Message], None]
    renewed: Callable[[int], None]
    learned: Callable[[LeaseTerms], None]
    clock: Clock
    lease: Lease
    epoch: int = 0
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    registered: threading.Event = field(default_factory=threading.Event)

    def registration(self) -> Register:
        """What the agent says of itself to get a new epoch."""
        return Register(facts=self.facts(), store_id=self.identity.store_id, held=self.held())

    def accept(self, answer: Registered, sent_ms: int) -> None:
        """The new epoch, and the control plane's word on what we hold. Raises Refused where another installation answered."""
        if answer.store_id != self.identity.store_id:
            raise Refused(
                f"the server at this address is installation {answer.store_id}, but this node joined {self.identity.store_id}; "
                f"remove node.json from the node's state directory to join the new one"
            )
        self.epoch, self.terms = answer.epoch, answer.lease
        self.learned(answer.lease)
        self.post(Judged(kill=answer.kill))  # before the renewal counts: nothing that is to be killed starts on the strength of it
        self.renew(sent_ms)
        self.registered.set()
        log.info("registered", extra={"node": self.identity.node, "epoch": self.epoch, "keep": len(answer.keep), "kill": len(answer.kill)})

    def renew(self, sent_ms: int) -> None:
        """What was sent at `sent_ms` has been answered."""
        self.lease.renewed(sent_ms, self.terms)
        self.renewed(sent_ms)

    def leave(self) -> None:
        """The epoch does not hold any more: register again before anything else."""
        self.epoch = 0
        self.registered.clear()
