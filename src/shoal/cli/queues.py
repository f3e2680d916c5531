"""`shoal queues`: the quota tree; set and delete its vertices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import complete_queue, epilog, json_option, yes_option
from shoal.cli.session import open_session

if TYPE_CHECKING:
    from shoal.model.queue import QueueLimits, QueueSpec, Quota

_NO_LIMIT = "none"
LIMIT_NAMES = (
    *("running_jobs", "running_jobs_per_user", "gpus_per_user", "priority_budget", "priority_budget_per_user"),
    *("queued_jobs", "queued_jobs_per_user", "time"),
)
LIMIT_HELP = f"Bound jobs: {', '.join(LIMIT_NAMES)}; =none takes a bound away."


@click.group(
    "queues", invoke_without_command=True, epilog=epilog("shoal queues", "shoal queues set research --gpu h100=16 --borrow gpu/h100=8")
)
@json_option("a list of QueueView")
@click.pass_context
def queues(ctx: click.Context, as_json: bool) -> None:
    """List queues as a tree, with what they use of their quota; or set and delete one."""
    if ctx.invoked_subcommand is not None:
        return
    session = open_session(as_json)
    views = session.api.queues.list()
    from shoal.render.queues import queue_tree

    session.show(views, lambda look: queue_tree(views, look))


@queues.command(
    "set",
    epilog=epilog(
        "shoal queues set research --gpu h100=16 --cpu 256 --weight 2",
        "shoal queues set nlp --parent research --gpu 8 --borrow gpu=none",
        "shoal queues set research --limit running_jobs_per_user=4 --limit gpus_per_user=16 --limit time=2d",
        "shoal queues set research --closed",
    ),
)
@click.argument("name", metavar="NAME", shell_complete=complete_queue)
@click.option("--parent", metavar="NAME", shell_complete=complete_queue, help="The queue above it.")
@click.option("--of-project", "project", metavar="NAME", help="The project that it belongs to.")
@click.option("--gpu", "-g", "gpus", multiple=True, metavar="[MODEL=]COUNT", help="Nominal quota of GPUs: h100=16, or 16 of any model.")
@click.option("--cpu", metavar="COUNT", help="Nominal quota of CPUs.")
@click.option("--memory", metavar="SIZE", help="Nominal quota of memory, for example 2TiB.")
@click.option("--borrow", multiple=True, metavar="RESOURCE=AMOUNT", help="Borrows at most so much: gpu/h100=8, or =none for no limit.")
@click.option("--lend", multiple=True, metavar="RESOURCE=AMOUNT", help="Lends at most so much.")
@click.option("--weight", metavar="NUMBER", help="Share among its siblings; 1 by default, 0 takes what nobody else wants.")
@click.option(
    "--order", type=click.Choice(["strict", "best-effort"]), help="strict: what does not fit holds back those that could use its GPUs."
)
@click.option("--closed/--open", default=None, help="A closed queue takes jobs and starts none.")
@click.option("--default-time", metavar="LENGTH", help="Time limit of jobs that name none.")
@click.option("--limit", "bounds", multiple=True, metavar="NAME=NUMBER", help=LIMIT_HELP)
@click.option("--min-run", metavar="LENGTH", help="A job is not stopped for another before it has run so long.")
@json_option("the Queue")
def set_queue(name: str, as_json: bool, **given: Any) -> None:
    """Make a queue, or change what is given of one that is there; the rest stays as it is."""
    from shoal.base.errors import Invalid, NotFound
    from shoal.model.queue import QueueSpec

    session = open_session(as_json)
    if "/" in name:
        above, _, own = name.rpartition("/")
        raise Invalid(
            f"queue {name!r}: names have no '/'; its place in the tree is said by --parent: shoal queues set {own} --parent {above}"
        )
    try:
        view = session.api.queues.get(name)
        before, version = view.spec, view.version
    except NotFound:
        before, version = QueueSpec(project=session.settings.project), 0
    queue = session.api.queues.set(name, _changed(before, given), version=version)
    session.row(queue, f"queue {queue.id} is {'changed' if version else 'made'}")


def _changed(before: QueueSpec, given: dict[str, Any]) -> QueueSpec:
    """`before` with what was given laid over it. Raises Invalid for amounts that are none."""
    from msgspec.structs import replace

    from shoal.cli.parse import duration_s, thousandths

    fields: dict[str, Any] = {key: given[key] for key in ("parent", "project", "order", "closed") if given[key] is not None}
    if given["weight"] is not None:
        fields["weight"] = thousandths("--weight", given["weight"])
    if given["default_time"] is not None:
        fields["default_time_ms"] = round(duration_s("--default-time", given["default_time"]) * 1_000)
    if given["min_run"] is not None:
        fields["min_run_ms"] = round(duration_s("--min-run", given["min_run"]) * 1_000)
    fields["quotas"] = _quotas(before.quotas, given)
    fields["limits"] = _bounds(before.limits, given["bounds"])
    return replace(before, **fields)


def _bounds(before: QueueLimits, texts: tuple[str, ...]) -> QueueLimits:
    from msgspec.structs import replace

    from shoal.base.errors import Invalid
    from shoal.base.words import did_you_mean
    from shoal.cli.parse import duration_s

    fields: dict[str, int | None] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        name = name.replace("-", "_")
        if not equals or name not in LIMIT_NAMES:
            hint = did_you_mean(name, LIMIT_NAMES)
            raise Invalid(f"--limit {text}: write NAME=NUMBER, for example gpus_per_user=16{hint}; there are {', '.join(LIMIT_NAMES)}")
        field = "time_ms" if name == "time" else name
        if amount == _NO_LIMIT:
            fields[field] = None
        elif name == "time":
            fields[field] = round(duration_s("--limit time", amount) * 1_000)
        elif amount.isascii() and amount.isdigit() and len(amount) < 16:
            fields[field] = int(amount)
        else:
            raise Invalid(f"--limit {text}: {name} is a whole number, or none")
    return replace(before, **fields)


def _quotas(before: dict[str, Quota], given: dict[str, Any]) -> dict[str, Quota]:
    from msgspec.structs import replace

    from shoal.cli.parse import memory_bytes, thousandths
    from shoal.model.queue import Quota

    nominal = dict(_gpu_quota(text) for text in given["gpus"])
    if given["cpu"] is not None:
        nominal["cpu"] = thousandths("--cpu", given["cpu"])
    if given["memory"] is not None:
        nominal["memory"] = memory_bytes("--memory", given["memory"])
    quotas = dict(before)
    for resource, amount in nominal.items():
        quotas[resource] = replace(quotas.get(resource, Quota()), nominal=amount)
    for flag, field in (("borrow", "borrowing_limit"), ("lend", "lending_limit")):
        for text in given[flag]:
            resource, limit = _limit(f"--{flag}", text)
            quotas[resource] = replace(quotas.get(resource, Quota()), **{field: limit})
    return quotas


def _gpu_quota(text: str) -> tuple[str, int]:
    from shoal.cli.parse import thousandths

    model, equals, count = text.rpartition("=")
    return (f"gpu/{model.lower()}" if equals else "gpu"), thousandths("--gpu", count)


def _limit(flag: str, text: str) -> tuple[str, int | None]:
    from shoal.base.errors import Invalid
    from shoal.cli.parse import memory_bytes, thousandths

    resource, equals, amount = text.rpartition("=")
    if not equals or not (resource in ("gpu", "cpu", "memory") or resource.startswith("gpu/")):
        raise Invalid(f"{flag} {text}: write RESOURCE=AMOUNT with gpu, gpu/MODEL, cpu or memory, for example gpu/h100=8")
    if amount == _NO_LIMIT:
        return resource, None
    return resource, memory_bytes(flag, amount) if resource == "memory" else thousandths(flag, amount)


@queues.command("delete", epilog=epilog("shoal queues delete old --yes"))
@click.argument("name", metavar="NAME", shell_complete=complete_queue)
@yes_option
@json_option("{queue, deleted}")
def delete(name: str, yes: bool, as_json: bool) -> None:
    """Delete a queue that has no jobs and no queues under it."""
    session = open_session(as_json)
    session.confirm(f"Delete queue {name}?", yes)
    session.api.queues.delete(name)
    session.row({"queue": name, "deleted": True}, f"queue {name} is deleted")
