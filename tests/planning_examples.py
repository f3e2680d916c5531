"""
A worked example of every planning topic: inputs as a user would type them, and results that were worked out apart from the code.

Results are in the unit of the answer; `1e-3` relative unless an example says more. Tests of planning share this table.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Example(NamedTuple):
    inputs: dict[str, Any]
    want: dict[str, Any]


TRACE_12H = (1,) * 40 + (0,) * 40 + (1,) * 160
"""Twelve hours of 3-minute ticks: two up, two down, eight up."""

EXAMPLES: dict[str, Example] = {
    "cold_start": Example(
        {"image_compressed": "15GB", "weights": "14GB"},
        {"total": 367.56, "image_link": 240, "weights_link": 70, "copy_link": 0.56, "image_share": 0.65295},
    ),
    "warm_pool": Example(
        {"start_rate": "12 starts/min", "refill_time": "1min", "ramp": "3 instances/min"},
        {"offered": 12, "pool_loss": 20, "miss_at_pool_loss": 0.0097956, "pool_backorder": 22, "pool_ramp": 3, "cost_month": 36_500},
    ),
    "keep_alive": Example(
        {"mean_gap": "30min", "keep_alive": "15min", "cold_latency": "40s"}, {"p_cold": 0.60653, "idle_per_request": 708.245}
    ),
    "replicas": Example(
        {"request_rate": "20/s", "service_rate": "4/s", "ramp": "0.05 requests/s/s", "backlog": 120},
        {"replicas_steady": 7, "rate_when_ready": 23.786, "replicas": 10},
    ),
    "false_ready": Example(
        {"request_rate": "20/s", "replicas": 7}, {"unready_window": 52.36, "failed_per_replica": 149.6, "failed_per_rollout": 1_047.2}
    ),
    "prefix_router": Example({"prefixes": 100, "cached": 20, "replicas": 4}, {"hits_random": 0.2, "hits_affinity": 0.8}),
    "image_pull": Example(
        {"layers_compressed": "0.03, 2, 1.2, 3.5, 1.9, 1.35, 5, 0.02 GB", "max_concurrent": 6},
        {"download": 80.48, "ready": 151.76, "one_connection": 240, "bound_largest": 80, "bound_unpack": 120},
    ),
    "image_pull_fleet": Example(
        {"nodes": 64, "image": "15GB", "registry_egress": "10Gbit/s"}, {"client_server": 768, "p2p_bound": 12, "speed_up": 64}
    ),
    "cuda_compat": Example({"runtime": "12.8", "driver": "535.104.05"}, {"runs": True, "reason": "minor_version_compatibility"}),
    "stranded": Example(
        {"nodes": 100, "vcpu": 192, "memory": "2TiB", "pod_gpu": 1, "pod_vcpu": 32, "pod_memory": "128GiB"},
        {"pods_per_node": 6, "stranded_fraction": 0.25, "cost_year": 4.38e6},
    ),
    "stranded_fraction": Example(
        {"services": 40, "fraction": "300mGPU"}, {"integer_gpus": 40, "packed_gpus": 14, "util_packed": 0.857143, "per_gpu": 3}
    ),
    "mig": Example({"config": "3g.40gb, 3g.40gb"}, {"sms": 120, "sm_fraction": 0.90909, "memory_fraction": 1.0}),
    "mig_fragmentation": Example({"existing": [["1g.10gb", 4], ["1g.10gb", 5]], "want": "3g.40gb"}, {"possible": True, "starts": (0,)}),
    "gpu_sharing": Example(
        {"clients": 7, "same_tenant": "no"}, {"profile": "1g.20gb", "worst_wait": 12, "way": "whole_gpus", "mig_instances": 4}
    ),
    "hybrid": Example(
        {"training": 120, "serving_mean": 90, "serving_peak": 260, "usable": "92%"}, {"static": 390.435, "shared": 260, "saving": 0.33407}
    ),
    "gang_start": Example({"pods": 64, "mean_start": "20s"}, {"expected_gang_start": 94.878, "idle_gpu_seconds": 4_792.18}),
    "engine_choice": Example({"service_share": "30%", "gang_share": "60%", "trace": "30 days"}, {"base": "hybrid"}),
    "gang_deadlock": Example(
        {"cluster": 64, "job_a": 48, "job_b": 24}, {"deadlock_possible": True, "p_no_deadlock": 0.0316, "wasted_per_timeout": 5.3333}
    ),
    "fgd": Example(
        {
            "node_cpu": 20,
            "gpu_left": "0.3, 0.5, 1, 1",
            "shapes": [[0.4, 4, 1, 0.25], [0.3, 8, 1, 1], [0.2, 24, 2, 1], [0.1, 2, 0, 0]],
            "place_cpu": 4,
            "place_gpu": 0.25,
        },
        {"fragment_before": 1.08, "best_gpu": 1, "best_delta": -0.15, "packing_gpu": 0},
    ),
    "fleet_fragments": Example(
        {
            "nodes": [{"node": "a", "count": 2, "cpu": 64, "gpus": 4}, {"node": "b", "cpu": 4, "gpus": 3, "rest": 0.5}],
            "shapes": [[0.5, 8, 1, 1], [0.5, 16, 4, 1]],
        },
        # On both of a: nothing is lost. On b CPUs are short for either shape; four GPUs are not there for the second one.
        {"free": 11.5, "fragment": 3.5, "without_cpu": 0.5 * (3.5 - 0.5), "fragment_share": 0.304348},
    ),
    "spread_fragmentation": Example(
        {"gpus": 64, "slots": 4, "pods": 64},
        {"free_gpus": 48, "whole_free_spread": 0, "whole_free_random": 20.0907, "whole_free_packed": 48},
    ),
    "defragmentation": Example({"moves": 2, "pod_gpu": 0.25, "gained_gpus": 1, "use": "30min"}, {"cost": 5, "gain": 30, "worth_it": True}),
    "tensor_parallel": Example(
        {"hidden": 8192, "layers": 80, "tokens": 4096, "params": "70 billion"},
        {"message": 67.1089, "compute": 543.58, "step_nvlink": 627.09, "relative_speed_rails": 0.8679, "bus_for_half_speed": 52.886},
    ),
    "tensor_parallel_decode": Example(
        {"hidden": 8192, "layers": 80, "batch": 32, "params": "70e9"}, {"tpot_inside": 6.8301, "tpot_split": 12.1599, "slowdown": 1.78034}
    ),
    "parallelism_traffic": Example(
        {"params": "70e9", "layers": 80, "hidden": 8192, "tokens": 4096, "tp": 8, "pp": 4, "dp": 8, "micro_batches": 16},
        {"tp_bytes": 150.324, "pp_bytes": 0.268435, "pp_bytes_unscattered": 2.14748, "dp_bytes": 7.65625, "bubble": 0.157895},
    ),
    "expert_parallel": Example(
        {"moe_layers": 58, "top_k": 8, "hidden": 7168, "tokens": 4096, "ep": 32},
        {"ep_bytes": 105.579, "inside": 0.234620, "across": 2.11158},
    ),
    "pooling": Example({"teams": 10, "mean": 20, "sd": 8, "correlation": 0.1}, {"separate": 386.108, "pooled": 281.1, "saving": 0.272}),
    "pooling_queue": Example({"teams": 10, "offered": 12}, {"per_team": 19, "separate": 190, "pooled": 140}),
    "pooling_blocking": Example({"teams": 10, "offered": 12}, {"separate": 200, "pooled": 138}),
    "fair_share": Example(
        {"capacity": 128, "demand": "90, 10, 40, 30", "weight": "48, 32, 32, 16", "quota": "48, 32, 32, 16"},
        {"share_0": 59, "share_1": 10, "share_2": 39.3333, "share_3": 19.6667},
    ),
    "slurm_fairshare": Example(
        {"normalised_usage": 0.5, "normalised_shares": 0.25, "usage_before": "1000 GPU*h", "age": "1week", "steady_use": "10 GPU*h/day"},
        {"factor": 0.25, "decayed_usage": 500, "settled_usage": 100.99},
    ),
    "dominant_share": Example({"gpu": 9, "cpu": 18, "tenants": [[1, 4], [3, 1]]}, {"tasks_0": 3, "tasks_1": 2, "level": 0.666667}),
    "queue_splitting": Example({"owners": 4, "queues": 2, "asked": 8, "used": 5}, {"share_split": 0.4, "padding": 1.6}),
    "sandbox": Example(
        {
            "sessions": 50_000,
            "session_memory": "512MiB",
            "overhead": "69MiB",
            "host_memory": "512GiB",
            "session_cpu": 0.05,
            "host_cores": 64,
            "spare_hosts": 2,
        },
        {"per_host_memory": 812, "hosts_memory": 62, "hosts_cpu": 46, "hosts": 64, "start_rate": 83.3333},
    ),
    "sandbox_tiers": Example(
        {
            "sessions": 50_000,
            "session_memory": "512MiB",
            "host_memory": "512GiB",
            "mix": [["gvisor", 0.8], ["microvm", 0.18], ["vm", 0.02]],
        },
        {"hosts": 46 + 12 + 3},
    ),
    "sandbox_overcommit": Example(
        {"mean_memory": "581MiB", "sd_memory": "256MiB", "limit_memory": "1093MiB", "host_memory": "512GiB"}, {"by_limit": 431, "safe": 774}
    ),
    "spot_breakeven": Example(
        {"discount": "60%", "interval": "1h", "checkpoint": "1min", "restart": "10min", "rate": "0.5/h"},
        {"waste_per_preemption": 40, "factor_exact": 1.440187, "break_even_first_order": 2.225, "break_even_exact": 1.236658},
    ),
    "checkpoint_interval": Example({"checkpoint": "5min", "mtbf": "24h"}, {"young": 120, "daly": 116.6898, "exact": 116.69007}),
    "spot_gang": Example(
        {"node_rate": "0.05/h", "nodes": 64, "checkpoint": "1min", "restart": "10min", "discount": "60%"},
        {"p_survive": 0.040762, "max_gang": 67},
    ),
    "spot_trace": Example(
        {"nodes": 4, "up": (4,) * 50 + (2,) * 25 + (4,) * 15 + (0,) * 10, "tick": "6min"},
        {"all_up": 0.65, "none_up": 0.1, "availability": 0.775, "event_rate": 2 / 6.5, "node_rate": 6 / 31, "lost_per_event": 3},
    ),
    "spot_deadline": Example(
        {"work": "8h", "deadline": "11h", "changeover": "6min", "available": TRACE_12H, "tick": "3min"},
        {"lower_bound": 0.333333, "greedy": 8.2 / 8 / 3, "availability": 0.833333},
    ),
    "reclaim": Example(
        {"ramp": "3 GPU/min", "delay_slo": "2s", "serving_gpus": 60}, {"reclaim_time": 195, "time_to_break": 69.282, "headroom": 6.2859}
    ),
    "floor_borrow": Example(
        {"mean": 60, "amplitude": 40, "buffer": 8}, {"static_util": 0.6, "held_mean": 66.9, "util": 0.897, "max_slope": 0.174533}
    ),
    "queue_scan": Example(
        {"entries": 100_000, "shapes": 200, "start_rate": "20/min"},
        {"full_scan": 10, "depth_scan": 0.05, "shape_scan": 0.02, "mean_wait": 83.3333, "last_seen": 82.9167},
    ),
    "queue_wait": Example(
        {"high_rate": "8/h", "low_rate": "20/h", "service_rate": "0.5/h", "servers": 64},
        {"p_wait": 0.215123, "wait": 3.22684, "wait_high": 0.537807, "wait_low": 4.302457},
    ),
    "drain": Example({"cluster": 64, "gang": 32, "mean_remaining": "2h"}, {"wait": 1.3707, "idle": 23.72}),
    "ageing": Example({"gap": 1_000, "gain": "5/min"}, {"closes": 200}),
    "backfill": Example(
        {"processors": 4, "jobs": [[1, 0, 10, 3, 10], [2, 1, 10, 4, 10], [3, 2, 5, 1, 5], [4, 3, 20, 1, 20]]},
        {"fcfs_starts": (0, 10, 20, 20), "easy_starts": (0, 10, 2, 20), "fcfs_mean_wait": 11, "easy_mean_wait": 6.5, "easy_makespan": 40},
    ),
    "victim": Example(
        {"need": 8, "jobs": [["a", 8, "50min", "10min"], ["b", 8, "5min", "10min"], ["c", 16, "2min", "10min"]]},
        {"lost": 120, "victims": ("b",)},
    ),
    "ray_idle": Example(
        {"mean_gap": "5min"}, {"p_release": 0.818731, "seconds_per_gap": 201.752, "cost_per_gap": 1_614.02, "best_timeout": 0}
    ),
    "ray_empty_nodes": Example({"nodes": 16, "gpus": 8, "actors": 32}, {"random": 1.48396, "packed": 12}),
    "ray_placement_group": Example({"bundles": 4, "gpus": 8, "ready": 3, "waited": "10min"}, {"held": 24, "waste": 4}),
    "committed": Example(
        {"mean": 400, "sd": 100, "committed_price": "1.8USD/GPU/h", "on_demand_price": "3USD/GPU/h"},
        {"reserve": 374.665, "cost": 835.9, "all_on_demand": 1_200, "break_even_utilisation": 0.6},
    ),
    "committed_diurnal": Example(
        {"mean": 60, "amplitude": 40, "committed_price": "1.5USD/GPU/h", "on_demand_price": "3USD/GPU/h"},
        {"reserve": 60, "cost": 128.197, "all_on_demand": 180, "all_peak_reserved": 150},
    ),
    "committed_decline": Example(
        {"discount": "45%", "years": "3yr", "decline": "30%/yr"}, {"average_relative_price": 0.614004, "break_even_utilisation": 0.895759}
    ),
    "capacity_screening": Example(
        {"committed": "1.6USD/h", "block_fixed": "0.5USD/h", "block_used": "1.3USD/h", "on_demand": "3.4USD/h"},
        {"block_vs_on_demand": 0.238095, "committed_vs_block": 0.846154, "block_ever_best": True},
    ),
    "capacity_ladder": Example(
        {"demand": "10, 20, 30, 40", "committed": "1.5USD/GPU/h", "on_demand": "3USD/GPU/h"},
        {"committed_gpus": 20, "overflow_mean": 7.5, "cost": 52.5, "all_on_demand": 75},
    ),
    "bring_up": Example(
        {"nodes": 200, "parallel": 50, "new_nodes": "50 nodes/day"},
        {"hand_hours": 160, "expected_faulty": 19.2158, "operator_hours": 0.8, "start_loss": 40, "start_loss_year": 36_500},
    ),
    "check_order": Example(
        {
            "checks": [
                ["driver", 0.25, "20s"],
                ["toolkit", 0.2, "30s"],
                ["plugin", 0.3, "15s"],
                ["taints", 0.15, "5s"],
                ["allocatable", 0.1, "5s"],
            ]
        },
        {"expected": 35.5, "bottom_up": 52.5, "order": ("taints", "allocatable", "plugin", "driver", "toolkit")},
    ),
    "duplicate_creates": Example({"creates": "10000 creates/day", "timed_out": "2%"}, {"duplicates": 100, "waste": 533.333}),
    "key_collision": Example({"keys": 1e9, "bits": 64}, {"p_collision": 0.02674}),
    "offset_paging": Example({"inserts": "5 rows/s", "pages": 50, "page_time": "200ms"}, {"repeated_rows": 49}),
    "cancel_latency": Example({"heartbeat": "10s", "grace": "30s"}, {"latency": 35, "still_charged": 280}),
}
