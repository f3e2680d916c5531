"""Every bound of Shoal with its reason. A loop, a queue or an input without a bound here is a defect."""

from __future__ import annotations

from typing import Final

# --- input ---------------------------------------------------------------------------------------------------------------
JOB_FILE_BYTES_MAX: Final = 1 << 20
"""A job file is written by people; 1 MiB holds 10,000 lines. Larger ones are a mistake or an attack."""
YAML_DEPTH_MAX: Final = 32
"""Nesting of a job file; the schema needs 6."""
YAML_NODES_MAX: Final = 50_000
"""Nodes of a parsed file; aliases are refused, so this is also the bound after expansion."""
WORKDIR_BYTES_MAX: Final = 2 << 30
"""A working directory travels at each submit; code fits, data sets belong in mounts."""
WORKDIR_FILES_MAX: Final = 100_000
REQUEST_BYTES_MAX: Final = 4 << 20
"""A JSON request: a batch of a thousand jobs of 4 KiB."""
REQUEST_HEAD_BYTES_MAX: Final = 64 << 10
"""Request line and headers; a token, a cursor and what proxies add need 4 KiB."""
REQUEST_HEAD_S_MAX: Final = 30
"""From a connection's start, or a request's first byte, to the end of its head: a packet or two. What is slower only holds a socket."""
REQUEST_BODY_PAUSE_S_MAX: Final = 60
"""Between two pieces of a body; a client that is slow but there sends something in that time."""
INT64_MAX: Final = (1 << 63) - 1
"""The largest whole number that both databases and most clients can hold."""
NAME_CHARS_MAX: Final = 128
ENV_VARS_MAX: Final = 1_000
ENV_VALUE_BYTES_MAX: Final = 64 << 10
"""Linux refuses one argument or variable over 128 KiB (MAX_ARG_STRLEN)."""
FAULTS_SHOWN_MAX: Final = 12
"""Faults told at once: one screen."""
FOLLOWED_TASKS_MAX: Final = 64
"""Tasks whose output one client follows at once, a thread and a connection each; nobody reads more side by side."""

# --- jobs ----------------------------------------------------------------------------------------------------------------
NODES_PER_JOB_MAX: Final = 16_384
TASKS_PER_NODE_MAX: Final = 1_024
TASKS_PER_JOB_MAX: Final = 131_072
"""80,000 GPUs with a task each, with room."""
GPUS_PER_NODE_MAX: Final = 64
"""The largest shipped node has 16; NVL racks show up as many nodes."""
SHARES_PER_GPU_MAX: Final = 48
"""Soft shares of one GPU where nothing else is said: the clients of one MPS server up to CUDA 13.0 (60 from 13.1 on)."""
PARTS_PER_NODE_MAX: Final = GPUS_PER_NODE_MAX * SHARES_PER_GPU_MAX
CPUS_PER_NODE_MAX: Final = 4_096
MEMORY_BYTES_MAX: Final = 1 << 50
RANKS_TOLD_MAX: Final = 1_024
"""Ranks that the view of a job tells with their devices: 128 nodes of eight, 100 kB."""
ARRAY_TASKS_MAX: Final = 10_000
GROUPS_PER_JOB_MAX: Final = 64
DEPENDENCIES_PER_JOB_MAX: Final = 1_000
PRIORITY_MAX: Final = 1_000_000
"""Priorities lie in -PRIORITY_MAX..PRIORITY_MAX, so that sums never overflow 64 bits."""
TIME_LIMIT_MS_MAX: Final = 366 * 86_400_000
RETRIES_MAX: Final = 1_000
HOLD_MS_MAX: Final = 24 * 3_600_000
"""A gang keeps its nodes idle so long after a failure at most: a day is longer than any repair that is waited for."""
GRACE_MS_MAX: Final = 86_400_000
"""A grace holds devices that nobody can use; no checkpoint takes a day."""
ALTERNATIVES_PER_JOB_MAX: Final = 64
"""Each entry of any_of or ordered is a placement tried per cycle."""
MOUNTS_PER_JOB_MAX: Final = 64
SECRETS_PER_JOB_MAX: Final = 64
LABELS_PER_JOB_MAX: Final = 64
MODELS_PER_ASK_MAX: Final = 64
"""More GPU models than are in the field at once."""
BATCH_JOBS_MAX: Final = 1_000
"""Creates in one request: as many as REQUEST_BYTES_MAX holds at a usual size, and few commit groups."""

# --- scheduling ----------------------------------------------------------------------------------------------------------
PLACED_PER_CYCLE_MAX: Final = 1_000
"""Bounds one cycle's plan, and so the time until the next picture of the world is taken."""
ATTEMPTS_PER_CYCLE_MAX: Final = 10_000
"""Distinct (queue, shape) pairs tried in a cycle; same shapes are tried once."""
QUEUE_DEPTH_MAX: Final = 16
"""Depth of the quota tree."""
HOLDERS_SHOWN_MAX: Final = 8
"""Holders, blockers, nodes and jobs ahead that a reason names: more do not fit a line."""
RUN_KINDS_KEPT: Final = 65_536
"""Kinds of jobs (project, owner, name, size) whose last run times are remembered; some 300 bytes each."""
FORECASTS_OPEN_MAX: Final = 16_384
"""Jobs whose first forecast is kept until they start; some 100 bytes each."""
FORECASTS_KEPT: Final = 50
"""Past forecasts of a queue that say how good the next one is: those of its present load, and enough for four in five."""
FORECASTS_LEAST: Final = 10
"""Fewer past forecasts say nothing about a share of them."""
SHAPES_KEPT_MAX: Final = 65_536
"""Distinct asks remembered in normalised form: more than the shapes of a large installation, about 50 MiB when full."""
NEEDS_TABLED_MAX: Final = 2_048
"""Member asks for which the board keeps a row of "fits here" flags: 20 MiB at 10,000 nodes. More are worked out when asked for."""
MODELS_TOLD_APART_MAX: Final = 62
"""GPU models of a fleet that packing knows by a bit each of a 64-bit mask; the rest count as the first."""
ARRIVALS_TRAINED_MAX: Final = 40_000
"""Arrivals of one replay that a value table is trained on: four seconds of decisions."""
NODES_TRAINED_MAX: Final = 512
"""Nodes that a value table is trained on; of a larger fleet, every so many of each kind: what is learned is about pieces, not sites."""
SHAPES_SCORED_MAX: Final = 512
"""Member asks for which a score per node is remembered: 120 MiB at 10,000 nodes. More are scored when asked for."""
ROWS_TOUCHED_MAX: Final = 65_536
"""Moves of nodes' room that tables may lag behind before they are worked out from the start."""
DEVICE_CHOICES_MAX: Final = 65_536
"""Answers to "which of these free GPUs" remembered per build of node; an eight-GPU build has 2,048."""
DOMAINS_TRIED_MAX: Final = 64
"""Topology domains in which a gang of several groups is tried; those with least room that is still enough come first."""
RESERVATIONS_MAX: Final = 64
"""Blocked gangs that have room kept for them at a time; each is looked at by everybody who would pass it."""
RESERVE_TRIES_MAX: Final = 64
"""Looks at the fleet at another time in one cycle, for all reservations: about half a millisecond each on 10,000 nodes."""
RESERVE_TRIES_PER_JOB_MAX: Final = 16
"""Times tried for one gang; the first is right unless other reservations are in its way."""
PREEMPT_TRIES_MAX: Final = 8
"""Gangs for which victims are looked for in one cycle: some milliseconds each on a large fleet."""
PREEMPT_HEADS_MAX: Final = 4
"""Of these from one queue: its first asks that cannot start and for which it is not known yet that nobody goes."""
PREEMPT_WALK_MAX: Final = 64
"""Asks of one queue that are stepped over on the way to these, since it is known of them: nanoseconds each, but in every cycle."""
PREEMPT_GO_ON_MS: Final = 1_000
"""Where a queue has more of these, the next are looked at so much later; at once would keep a large fleet's cycle running for ever."""
CHECKPOINT_WAIT_MS_MAX: Final = 600_000
"""The longest that a job which gives its room away is left to save, whatever its `checkpoint.takes`, and then the longest from its stop's
signal to the kill, whatever its grace: room that is owed is not withheld by asking for more."""
CHECKPOINT_REPORT_MS: Final = 10_000
"""A node tells of checkpoints of one job no more often than this, but for one that was asked for: each is a write."""
MOVE_TRIES_MAX: Final = 4
"""Gangs for which moves are looked for in one cycle: each of them clears nodes and places everybody again."""
MOVE_NODES_MAX: Final = 32
"""Nodes that are cleared in thought for one gang, those that miss least first: a larger gang's shape is freed by stops or by waiting."""
VICTIMS_LOOKED_AT_MAX: Final = 64
"""Running jobs weighed for a gang of few GPUs, the youngest first; for a larger one four to each of its GPUs."""
VICTIMS_PER_CYCLE_MAX: Final = 128
"""Running jobs weighed in one cycle after which no further gang is begun with: about 10 ms."""
REPRIEVES_MAX: Final = 64
"""Victims tried to be spared one by one, the dearest first."""
ENDS_PER_NODE_MAX: Final = 8
"""Known ends kept per node in the table of what will be free when; eight GPUs end at eight times at most."""
ENDS_WALKED_MAX: Final = 1_024
"""Ends of jobs walked through in one cycle to see when queues may start gangs again; later ones are too far away to plan for."""
RESIZES_PER_CYCLE_MAX: Final = 32
"""Elastic jobs that are looked at in one cycle, whether they could grow: about half a millisecond each on a large fleet."""
WAITERS_LOOKED_AT_MAX: Final = 512
"""Distinct waiting asks looked at before anybody grows; with more than these, somebody is taken to wait for the room."""
BRIEF_REASONS_MAX: Final = 64
"""Distinct asks for which a list of jobs says why they wait. A judgement each; a page rarely has more."""
BLOCKERS_LOOKED_AT_MAX: Final = 1_024
"""Running jobs among which those in the way of a job are sought. More hold too little each to be in a small set."""
BLOCKER_SETS_MAX: Final = 256
"""Sets of running jobs tried for one `why`. At some 0.1 ms each, what a person does not notice; past it the set is only enough."""
LIMITS_TRIED_MAX: Final = 8
"""Shorter time limits tried for one `why`: one per start that room is kept for."""
NODES_BACK_TRIED_MAX: Final = 8
"""Nodes away that are tried for one `why`. Who misses more than that needs no list of them."""
SCHEDULES_MAX: Final = 1_000
"""Schedules of all projects; each is looked at in every round of the control plane."""
SCHEDULE_RUNS_KEPT_MAX: Final = 200
"""Runs that a schedule remembers: they are in its record, which is written with every run."""
CRON_RUNS_PER_STEP_MAX: Final = 64
"""Schedules that are submitted in one round; at the full hour many are due at once, and the rest comes in the next round."""
CRON_TIMES_MAX: Final = 100
"""Times of one schedule that passed while nobody looked (the server was down) and are told as missed one by one."""
CRON_DAYS_MAX: Final = 3_000
"""Days that are searched for the next time: eight years lie between two leap days around 2100."""
RESERVATIONS_STORED_MAX: Final = 1_000
"""Reservations of nodes; every start is held against each of them that has not passed."""
WINDOW_SETS_KEPT_MAX: Final = 256
"""Distinct sets of windows for which the closed nodes are remembered; one per time limit of a job at most."""
WINDOWS_PASSED_MAX: Final = 32
"""Windows that an earliest start is moved behind, one after another, before it is told as no better than that."""
WHAT_IF_JOBS_MAX: Final = 16
"""Jobs, queues or nodes of each kind supposed in one what-if question; more is a scenario for `shoal simulate`."""
WHAT_IF_FORECASTS_MAX: Final = 64
"""Waiting jobs whose earliest start is worked out on each side of a what-if question, some milliseconds each."""
WHAT_IF_CHANGES_MAX: Final = 1_000
"""Jobs told in one what-if answer; the rest are counted."""
WHAT_IF_AT_ONCE: Final = 1
"""What-if questions and snapshots answered at a time: each builds boards of the whole installation."""
BLOCKING_NODES_MAX: Final = 256
"""Nodes searched for the fewest jobs whose end would start a gang; on a large full fleet all are much alike."""

# --- store and API -------------------------------------------------------------------------------------------------------
COMMIT_GROUP_MAX: Final = 256
"""ChangeSets in one transaction: enough to amortise a sync, few enough to keep the last one's wait under some milliseconds."""
WRITER_QUEUE_MAX: Final = 10_000
"""ChangeSets waiting for the writer; over it callers get Unavailable rather than memory growth."""
COMMIT_ROWS_MAX: Final = 20_000
"""Records in one transaction, unless a single ChangeSet has more: an array of 10,000 shares its commit with few others."""
HALF_LIFE_MS: Final = 7 * 86_400_000
"""Half-life of use where shares look back: a working week counts, a month is nearly forgotten. As Slurm's."""
USAGE_WRITE_MS: Final = 60_000
"""Between two writes of what queues have used: what a crash forgets of jobs that ended."""
KEYS_KEPT_MS: Final = 7 * 86_400_000
"""How long a create's idempotency key is remembered: a client that repeats it within a week gets its first job, not a second."""
KEYS_DROPPED_AT_ONCE: Final = 2_000
"""Rows, in the writer's turn: a few milliseconds."""
CHANGES_KEPT: Final = 50_000
"""Versions of which the full change is kept for readers that lag; one further behind starts from a snapshot."""
EVENT_VERSIONS_KEPT: Final = 1_000_000
"""Versions whose events are kept: months of a busy team."""
PAGE_ROWS_DEFAULT: Final = 50
PAGE_ROWS_MAX: Final = 1_000
EVENTS_PER_READ_MAX: Final = 1_000
WATCHERS_MAX: Final = 2_000
LONG_POLL_MS_MAX: Final = 30_000
COMMANDS_PER_POLL_MAX: Final = 1_000
REPORTS_PER_UPLOAD_MAX: Final = 2_000
LOG_BYTES_PER_UPLOAD_MAX: Final = 1 << 20
LOG_BYTES_PER_TASK_MAX: Final = 1 << 30
"""Past this a task's log is cut with a line that says so; the file on the node's disk is bounded too."""

START_FAILURES_MAX: Final = 16
"""Starts of one job given up in a row before it is held for a person to look: with waits that double to five minutes, about 45 minutes."""

# --- agents --------------------------------------------------------------------------------------------------------------
CAS_RETRIES_MAX: Final = 16
"""Times a use case reads again after VersionConflict before it gives up with Unavailable."""
LOST_DEVICE_CHECK_MS: Final = 1_000
KILL_ESCALATION_MS: Final = 60_000
"""Unkillable for so long: the node is cordoned and reported (Slurm drains at the same point, UnkillableStepTimeout)."""
REFUSALS_MAX: Final = 3
"""Jobs in a row that a node fails to prepare by its own fault before it is cordoned: one may be an accident, every one costs a start."""
EXEC_CALLS_PER_NODE_MAX: Final = 64
"""Calls for a terminal that wait for a node's next poll; a poll comes at least every LONG_POLL_MS_MAX."""

# --- control plane -------------------------------------------------------------------------------------------------------
ENDED_JOBS_KEPT_MAX: Final = 10_000
"""Ended jobs kept in memory beside the live ones, so that those who wait for an end need no read of the database."""
SAMPLES_PER_ALLOCATION_MAX: Final = 120
"""Ten minutes at one sample in five seconds, for each live allocation."""
TERMINALS_MAX: Final = 1_000
"""Terminals open or being opened at once; each holds two sockets."""
TERMINAL_WAIT_MS: Final = 60_000
"""A terminal whose agent has not dialled by then is given up: two long polls."""
ERRAND_JOBS_PER_STEP: Final = 256
"""Elements of an array touched in one step when the whole array is cancelled, held or released: one commit group."""
CHANGES_PER_READ: Final = 1_000
COMMIT_WAIT_MS_MAX: Final = 30_000
"""A step waits for its own writes so long before it gives the round up: slow disks take seconds, dead ones for ever."""

# --- simulation ----------------------------------------------------------------------------------------------------------
LOOP_TURNS_MAX: Final = 100_000
"""Callbacks of a simulated server in one turn: more is a loop that never waits, which would hold virtual time still for ever."""
