"""`shoal submit`: the jobs of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.options import command, json_option
from shoal.cli.session import Session, leave, open_session

if TYPE_CHECKING:
    from shoal.model.job import Job


@command(
    "submit",
    "shoal submit train.yaml",
    "shoal submit train.yaml --set gpus.count=4 --set time=2h -f",
    "shoal get 12 | shoal submit -",
    "shoal submit a.yaml b.yaml --must-fit --wait",
    "shoal submit nightly.yaml --cron '30 2 * * mon-fri' --time-zone Europe/Berlin",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Lay a value over the file: --set gpus.count=4.")
@click.option("--must-fit", is_flag=True, help="Refuse what today's nodes could never hold, rather than let it wait.")
@click.option("--dry-run", is_flag=True, help="Check everything, create nothing.")
@click.option("--follow", "-f", is_flag=True, help="Print what the job writes until it ends; then end with its exit code.")
@click.option("--wait", "-w", "wait_for_end", is_flag=True, help="Wait until all have ended; then end with the highest exit code.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the jobs' numbers.")
@click.option("--cron", metavar="WHEN", help="Submit it again and again: '30 2 * * *' (minute hour day month weekday), @daily.")
@click.option("--time-zone", default="UTC", show_default=True, metavar="NAME", help="Of --cron, for example Europe/Berlin.")
@click.option(
    "--overlap",
    type=click.Choice(["forbid", "allow", "replace"]),
    default="forbid",
    show_default=True,
    help="Of --cron, while the job of an earlier run has not ended: leave the run out, start beside it, or cancel that one first.",
)
@json_option("a Job per line, as created; with --wait or --follow once more, ended")
def submit(files: tuple[str, ...], must_fit: bool, dry_run: bool, follow: bool, wait_for_end: bool, **options: object) -> None:
    """
    Submit the jobs of one or more files; `-` is standard input. A file may hold several jobs, separated by `---`.

    All are checked before the first is created: one fault, and nothing is.
    """
    from shoal.cli.submitting import check, create, read_files
    from shoal.render.look import clean

    session = open_session(bool(options["as_json"]))
    if options["cron"] is not None:
        _schedule(session, files, options)
        return
    jobs = read_files(files, options["settings"])  # type: ignore[arg-type]
    if dry_run or len(jobs) > 1:
        checked = [check(session, job, must_fit=must_fit) for job in jobs]
        if dry_run:
            for would_be in checked:
                session.row(would_be, f"{clean(would_be.spec.name)}: good, would go to queue {would_be.queue}")
            return
    made: list[Job] = []
    for job in jobs:
        created, repeated = create(session, job, must_fit=must_fit)
        made.append(created)
        _tell(session, created, repeated, quiet=bool(options["quiet"]))
    if follow or wait_for_end:
        leave(_to_the_end(session, made, follow=follow))


def _schedule(session: Session, files: tuple[str, ...], options: dict[str, object]) -> None:
    """One schedule of the name of the one job of the files; one that is there already is changed."""
    from shoal.base.errors import Invalid
    from shoal.cli.submitting import read_files, with_workdir
    from shoal.model.schedule import ScheduleSpec

    jobs = read_files(files, options["settings"])  # type: ignore[arg-type]
    if len(jobs) != 1:
        raise Invalid(f"--cron takes one job, the files hold {len(jobs)}")
    (job,) = jobs
    spec = ScheduleSpec(
        cron=str(options["cron"]),
        time_zone=str(options["time_zone"]),
        overlap=options["overlap"],  # type: ignore[arg-type]
        job=with_workdir(session, job.spec, job.source),
    )
    made = session.api.schedules.set(job.spec.name, spec)
    from shoal.render.look import clean
    from shoal.render.schedules import next_text

    session.row(made, f"schedule {clean(made.name)}: next {next_text(made, session.look)}")


def _tell(session: Session, job: Job, repeated: bool, *, quiet: bool) -> None:
    from shoal.render.amounts import asks_text
    from shoal.render.look import clean

    array = f", array of {len(job.spec.array.indices)}" if job.spec.array is not None else ""
    again = " (an earlier try had created it)" if repeated else ""
    name, asks = clean(job.spec.name), clean(asks_text(job.spec))
    session.row(job, job.address if quiet else f"job {job.address} ({name}) submitted to queue {job.queue}: {asks}{array}{again}")


def _to_the_end(session: Session, made: list[Job], *, follow: bool) -> int:
    from shoal.cli.outcome import exit_code_of_array
    from shoal.cli.run import follow_to_end

    if follow and len(made) == 1 and not made[0].is_array and not session.as_json:
        return follow_to_end(session, made[0])
    ended = [session.api.jobs.wait(job.id) for job in made]
    for job in ended:
        if session.as_json:
            session.row(job, "")
    return max(exit_code_of_array(session.api, job) for job in ended)
