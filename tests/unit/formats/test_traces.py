"""Traces of each form as they come, with what is left out or changed told, and faults with their line."""

from __future__ import annotations

import pytest

from shoal.base.errors import Invalid
from shoal.formats.gavel import is_gavel, read_gavel, read_rates
from shoal.formats.openb import read_nodes, read_pods
from shoal.formats.philly import read_jobs_table
from shoal.formats.swf import SwfLine, format_swf, read_swf
from shoal.formats.workload import ask_of

SWF = """; Version: 2.2
; MaxProcs: 128
;   Queues:  2

1 0 5 100 16 -1 -1 16 200 -1 1 3 -1 -1 1 -1 -1 -1
2 10.5 -1 0 1 -1 -1 1 60 -1 0 4 -1 -1 -1 -1 -1 -1
3 20 -1 -1 8 -1 -1 8 60 -1 5 3 -1 -1 1 -1 -1 -1
4 30 -1 50 -1 -1 -1 20 10 -1 5 3 -1 -1 1 -1 -1 -1
5 40 -1 50 4 -1 -1 4 60 -1 2 3 -1 -1 1 -1 -1 -1
6 50 -1 -1 4 -1 -1 4 60 -1 1 3 -1 -1 1 -1 -1 -1
7 5 -1 7 3 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1
"""


def test_a_log_is_read_by_the_rules_of_its_form() -> None:
    workload = read_swf(SWF.splitlines(), "log.swf", 8)
    assert [(job.submit_ms, job.run_ms, job.limit_ms, job.owner, job.queue, job.exit_code) for job in workload.jobs] == [
        (0, 100_000, 200_000, "user3", "queue1", 0),
        (5_000, 7_000, None, "unknown", "default", 0),
        (10_500, 0, 60_000, "user4", "default", 1),
        (30_000, 50_000, 50_000, "user3", "queue1", 0),
    ]
    assert workload.processors == 128
    assert workload.notes == (
        "1 jobs cancelled before they ran are left out",
        "1 jobs pieces of checkpointed jobs are left out",
        "1 jobs without run time or processors are left out",
        "1 jobs ran longer than they had asked for; their limit is the time that they ran",
    )


def test_processors_become_whole_nodes_and_a_rest() -> None:
    assert ask_of(5, 8).gpus.count == 5  # type: ignore[union-attr]
    assert (ask_of(16, 8).nodes.low, ask_of(16, 8).gpus.count) == (2, 8)  # type: ignore[union-attr]
    whole, rest = ask_of(20, 8).groups
    assert (whole.nodes.low, whole.gpus.count, rest.nodes.low, rest.gpus.count) == (2, 8, 1, 4)  # type: ignore[union-attr]
    assert ask_of(20, 8) is ask_of(20, 8)
    rounded = read_swf(SWF.splitlines(), "log.swf", 8, round_up=True).jobs[-1].spec
    assert (rounded.nodes.low, rounded.gpus.count) == (3, 8)  # type: ignore[union-attr]


@pytest.mark.parametrize("line", ["1 2 3", "1 0 0 soon 1 0 0 1 1 1 1 1 1 1 1 1 1 1", "1 0 0 nan" + " 1" * 14, "1 1e300" + " 1" * 16])
def test_a_line_that_is_no_job_is_told_with_its_number(line: str) -> None:
    with pytest.raises(Invalid, match=r"log\.swf line 2: ") as caught:
        read_swf(["; Version: 2.2", line], "log.swf", 8)
    assert caught.value.faults[0].line == 2


def test_a_line_that_was_written_is_read_back() -> None:
    line = SwfLine(7, 10, 99.5, 16, 16, 120, 1, 3, 2)
    (job,) = read_swf([format_swf(line)], "log.swf", 8).jobs
    assert (job.submit_ms, job.run_ms, job.limit_ms, job.owner, job.queue) == (10_000, 99_500, 120_000, "user3", "queue2")


PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,3152,5600,1,460,V100M16|V100M32,LS,Running,100,160,110
p0,2000,1024,2,1000,,BE,Pending,0,50,
p2,4000,0,0,0,,BE,Running,120,130,120
"""


def test_pods_are_jobs_of_one_node() -> None:
    workload = read_pods(PODS.splitlines(), "pods.csv")
    two, share, cpu = workload.jobs
    assert (two.submit_ms, two.run_ms, two.spec.gpus.count, two.spec.cpus, two.owner) == (0, 50_000, 2, 2, "BE")  # type: ignore[union-attr]
    assert (share.run_ms, share.spec.gpus.share, share.spec.gpus.model) == (50_000, 460, ("v100m16", "v100m32"))  # type: ignore[union-attr]
    assert (share.spec.cpus, share.spec.memory.bytes) == (4, 5600 << 20)  # type: ignore[union-attr]
    assert (cpu.spec.gpus, cpu.spec.memory, cpu.spec.cpus) == (None, None, 4)
    assert workload.notes == (
        "1 pods asked for parts of a CPU; rounded up to whole ones",
        "1 pods never started in the trace; they run from creation to deletion",
    )


def test_nodes_of_a_table_have_what_it_says() -> None:
    nodes = read_nodes("sn,cpu_milli,memory_mib,gpu,model\na,96000,393216,2,G2\nb,32000,1024,0,\n".splitlines(), "nodes.csv")
    assert [(n.id, n.facts.cpus, n.facts.memory_bytes >> 20, [d.model for d in n.facts.devices]) for n in nodes] == [
        ("a", 96, 393_216, ["g2", "g2"]),
        ("b", 32, 1_024, []),
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("name,cpu_milli\nx,1\n", "memory_mib"),
        (PODS.splitlines()[0] + "\np,1000,1,1,1000,,LS,Running,100,50,60\n", r"line 2: deletion_time 50 lies before"),
        (PODS.splitlines()[0] + "\np,many,1,1,1000,,LS,Running,1,50,6\n", r"line 2: cpu_milli is 'many', wanted a number"),
    ],
)
def test_a_fault_of_a_pod_table_is_told(text: str, want: str) -> None:
    with pytest.raises(Invalid, match=want):
        read_pods(text.splitlines(), "pods.csv")


def test_a_table_of_either_heading_is_read_from_its_first_arrival_on() -> None:
    rows = ("2017-10-09 07:01:55,66.5,1,66,c1", "2017-10-09 07:00:55,10,12,120,c2", "2017-10-09 07:02:00,-1,1,0,c1")
    dated = "\n".join(("timestamp,duration,num_gpus,gpu_time,cluster", *rows))
    workload = read_jobs_table(dated.splitlines(), "philly.csv", 8)
    assert [(job.submit_ms, job.run_ms, job.queue) for job in workload.jobs] == [(0, 10_000, "c2"), (60_000, 66_500, "c1")]
    assert workload.jobs[0].spec is ask_of(12, 8)
    assert workload.notes == ("1 jobs without a run time or GPUs are left out",)
    numbered = "job_id,user,num_gpu,submit_time,duration\n0,vc1,4,100,211\n"
    (job,) = read_jobs_table(numbered.splitlines(), "jobs.csv", 8).jobs
    assert (job.submit_ms, job.run_ms, job.owner, job.queue) == (0, 211_000, "vc1", "vc1")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a,b\n1,2\n", "must name timestamp or submit_time"),
        ("timestamp,duration,num_gpus\nnoon,1,1\n", r"line 2: timestamp is 'noon', wanted a time"),
        ("submit_time,duration,num_gpus\n1,nan,1\n", r"line 2: duration is 'nan'"),
    ],
)
def test_a_fault_of_a_job_table_is_told(text: str, want: str) -> None:
    with pytest.raises(Invalid, match=want):
        read_jobs_table(text.splitlines(), "jobs.csv", 8)


RATES = b"""{"v100": {"('LM (batch size 5)', 1)": {"null": 2.5, "('A3C', 1)": [1, 1]}, "('LM (batch size 5)', 16)": {"null": 20}}}"""
GAVEL = [
    "LM (batch size 5)\tpython3 main.py --cuda\t--steps\t1\t250\t30.5\t1\n",
    "A3C\tpython3 main.py\t--steps\t0\t100\t40\t4\n",
    "LM (batch size 5)\tpython3 main.py\tlanguage\t--steps\t1\t1000\t16\t1\t-1.000000\t10.5\n",
]


def test_a_gavel_trace_counts_steps_and_the_throughputs_make_them_seconds() -> None:
    workload = read_gavel(GAVEL, "jobs.trace", 8, read_rates(RATES, "rates.json", "v100"))
    assert [(job.submit_ms, job.run_ms, job.owner) for job in workload.jobs] == [
        (0, 50_000, "LM (batch size 5)"),
        (20_000, 100_000, "LM (batch size 5)"),
    ]
    assert workload.jobs[0].spec is ask_of(16, 8)
    assert workload.notes == ("1 jobs are left out: the throughputs do not say how fast they run, for example A3C on 4 GPUs",)
    assert all(is_gavel(line) for line in GAVEL)
    assert not is_gavel("1 0 5 100 16 -1 -1 16 200 -1 1 3 -1 -1 1 -1 -1 -1")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["LM\t1\t2\n"], "line 1: 3 fields"),
        ([GAVEL[0], GAVEL[0].replace("30.5", "soon")], "line 2: wanted steps, GPUs and arrival as numbers"),
        ([GAVEL[0].replace("\t1\n", "\t0\n")], "line 1: wanted steps, GPUs and arrival as numbers"),
        ([GAVEL[0].replace("30.5", "nan")], "line 1: wanted"),
    ],
)
def test_a_line_that_is_none_is_told_with_its_number(lines: list[str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        read_gavel(lines, "jobs.trace", 8, read_rates(RATES, "rates.json", "v100"))


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"v100": {"LM": {}}}', b'{"v100": {"(\'LM\', 1)": {"none": 1}}}', b'{"v100": 3}'])
def test_throughputs_of_another_form_are_refused(raw: bytes) -> None:
    with pytest.raises(Invalid, match="rates"):
        read_rates(raw, "rates.json", "v100")


def test_throughputs_without_the_model_say_which_they_have() -> None:
    with pytest.raises(Invalid, match="no throughputs for 'h100'; it has v100"):
        read_rates(RATES, "rates.json", "h100")
