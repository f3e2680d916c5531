"""Options and arguments that several commands share, with what completes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from shoal.client.api import Api

F = TypeVar("F", bound=Callable[..., Any])
COMPLETED_MAX = 50


def epilog(*examples: str) -> str:
    """The examples of a command, kept line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)


def command(name: str, *examples: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with examples under its help."""
    return click.command(name, epilog=epilog(*examples), **more)


Found = Iterable[tuple[str, str]]
Completion = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completing(find: Callable[[Api], Found]) -> Completion:
    """Completes with what the server has, and with nothing where none answers: a completion must not complain."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001  click's signature
        from click.shell_completion import CompletionItem

        from shoal.base.errors import ShoalError
        from shoal.cli.session import Given, give, open_session

        options = ctx.find_root().params
        give(Given(url=options.get("url"), project=options.get("project"), state_dir=options.get("state_dir")))
        try:
            found = list(find(open_session().settings.api(patience_s=0)))
        except (ShoalError, OSError):
            return []
        return [CompletionItem(name, help=words) for name, words in found if name.startswith(incomplete)]

    return complete


complete_job = completing(lambda api: ((job.address, f"{job.spec.name} {job.state}") for job in api.jobs.list_all(count_max=COMPLETED_MAX)))
complete_node = completing(lambda api: ((view.node.id, str(view.node.state)) for view in api.nodes.list()))
complete_queue = completing(lambda api: ((view.name, f"{view.running_jobs} running") for view in api.queues.list()))


def json_option(record: str) -> Callable[[F], F]:
    """The flag --json; `record` says what it prints, by the API's own names where it is one of its records."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print JSON: {record}.")


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", "-r", default="", metavar="TEXT", help="Why; shown to everybody who asks.")
queue_option = click.option("--queue", "-q", metavar="NAME", shell_complete=complete_queue, help="Queue.")
job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
jobs_argument = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_job)
nodes_argument = click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=complete_node)
