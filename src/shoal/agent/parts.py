"""
The parts of GPUs of one allocation, from its preparation to its end: instances made, found again, and taken away. Called by `course`.
"""

from __future__ import annotations

import logging

from shoal.agent.devices import instance_key
from shoal.agent.probe.protocol import PartFailed, Probe
from shoal.agent.unprepared import Unprepared
from shoal.model.command import Prepare
from shoal.model.part import DevicePart

log = logging.getLogger(__name__)


def make_parts(probe: Probe, order: Prepare) -> dict[str, str]:
    """
    The UUIDs of the allocation's MIG instances by `instance_key`; those that are not there are made.

    An instance takes the driver some tenths of a second. Done twice it finds what is there. Raises Unprepared, by the node's fault.
    """
    try:
        return {instance_key(part): probe.make_part(part) for part in order.claim.parts}
    except PartFailed as failure:
        raise Unprepared(str(failure), of_node=True) from failure


def find_part(probe: Probe, part: DevicePart) -> str | None:
    """The UUID of a part; None where it is not there, or cannot be asked for."""
    try:
        return probe.part_uuid(part)
    except PartFailed:
        return None


def drop_parts(probe: Probe, order: Prepare) -> None:
    """Instances made for the allocation go. One that does not is taken away when the next is made in its place."""
    for part in order.claim.parts:
        try:
            probe.drop_part(part)
        except PartFailed as failure:
            log.warning("after %s: %s", order.allocation, failure)
