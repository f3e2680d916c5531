"""`shoal get`: a job as a file."""

from __future__ import annotations

import click

from shoal.cli.options import command, job_argument, json_option
from shoal.cli.session import json_text, open_session


@command("get", "shoal get 12 > again.yaml", "shoal get 12 -o json", "shoal get 12 | shoal submit - --set time=4h")
@job_argument
@click.option("--output", "-o", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Form of the file.")
@json_option("the JobView")
def get(job: str, form: str, as_json: bool) -> None:
    """Print what a job asked for, as a file that can be submitted again. --json prints the whole record instead."""
    session = open_session(as_json)
    view = session.api.jobs.get(job)
    if as_json:
        session.out(json_text(view))
    elif form == "json":
        session.out(json_text(view.job.spec))
    else:
        from shoal.formats.jobfile import write_job

        session.out(write_job(view.job.spec).rstrip("\n"))
