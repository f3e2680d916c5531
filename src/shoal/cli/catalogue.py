"""Every command by name: where it is, under which heading help lists it, and its line there. Help is printed from this alone."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """`attribute` of the module `shoal.cli.<module>` is the command. An alias is not listed."""

    module: str
    attribute: str
    panel: str
    summary: str
    alias: bool = False


_PLANE, _JOBS, _LOOK, _FLEET, _ACCESS = "A Shoal on this machine", "Run jobs", "Look at jobs", "Nodes and queues", "Access"
_PLAN = "Plan"

CATALOGUE: dict[str, Entry] = {
    "up": Entry("plane", "up", _PLANE, "Start a control plane and its agents here."),
    "down": Entry("plane", "down", _PLANE, "Stop what `shoal up` started here."),
    "join": Entry("plane", "join", _PLANE, "Make this machine a node of a Shoal elsewhere."),
    "db": Entry("database", "database", _PLANE, "Migrate, move and copy the database."),
    "version": Entry("version", "version", _PLANE, "Show the version of client and server."),
    "completion": Entry("completion", "completion", _PLANE, "Print or install the script that completes commands."),
    "submit": Entry("submit", "submit", _JOBS, "Submit the jobs of one or more files."),
    "run": Entry("run", "run", _JOBS, "Run a command as a job and follow it to its end."),
    "exec": Entry("terminal", "exec_command", _JOBS, "Run a command beside a task of a running job."),
    "wait": Entry("wait", "wait", _JOBS, "Wait for jobs and end with their exit code."),
    "cancel": Entry("cancel", "cancel", _JOBS, "Cancel jobs."),
    "hold": Entry("change", "hold", _JOBS, "Keep waiting jobs from starting."),
    "release": Entry("change", "release", _JOBS, "Let held jobs start."),
    "requeue": Entry("change", "requeue", _JOBS, "Stop jobs and queue them again."),
    "update": Entry("change", "update", _JOBS, "Change priority, time limit or queue of jobs."),
    "resize": Entry("change", "resize", _JOBS, "Say how many nodes a job shall have."),
    "jobs": Entry("jobs", "list_jobs", _LOOK, "List jobs (also: queue)."),
    "queue": Entry("jobs", "list_jobs", _LOOK, "List jobs.", alias=True),
    "status": Entry("jobs", "status", _LOOK, "Show all that is known of a job."),
    "why": Entry("jobs", "why", _LOOK, "Say why a job waits, and what would start it."),
    "logs": Entry("logs", "logs", _LOOK, "Print or follow what a job writes."),
    "get": Entry("get", "get", _LOOK, "Print a job as a file that can be submitted again."),
    "events": Entry("events", "events", _LOOK, "Print or follow what happens."),
    "nodes": Entry("nodes", "nodes", _FLEET, "List nodes and what is on their GPUs."),
    "doctor": Entry("doctor", "doctor", _FLEET, "Say which layer of a GPU node is broken, and what to do."),
    "cordon": Entry("nodes", "cordon", _FLEET, "Give nodes no new work."),
    "drain": Entry("nodes", "drain", _FLEET, "Empty nodes: no new work, what runs comes to its end."),
    "resume": Entry("nodes", "resume", _FLEET, "Give nodes work again."),
    "queues": Entry("queues", "queues", _FLEET, "List queues with quota and use; set and delete them."),
    "reservations": Entry("reservations", "reservations", _FLEET, "Reserve nodes for maintenance, or for somebody, during a window."),
    "reservation": Entry("reservations", "reservations", _FLEET, "Reserve nodes for a window.", alias=True),
    "schedules": Entry("schedules", "schedules", _JOBS, "Jobs that are submitted again and again: list, pause, resume, delete."),
    "schedule": Entry("schedules", "schedules", _JOBS, "Jobs that are submitted again and again.", alias=True),
    "token": Entry("tokens", "token", _ACCESS, "Make, list and revoke tokens."),
    "secret": Entry("secrets", "secret", _ACCESS, "Set, list and remove secrets of the project."),
    "plan": Entry("plan", "plan", _PLAN, "Answer a planning question: spot, quota, cold start, commitment and more."),
    "debug": Entry("debug", "debug", _PLAN, "Take a cycle to a file, and run it again without the server."),
    "simulate": Entry("simulate", "simulate", _PLAN, "Play a trace or a scenario through the scheduler."),
}
