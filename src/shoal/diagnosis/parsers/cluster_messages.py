"""What orchestration prints: operator and NFD, plugins, DRA, kubelet, scheduler, MIG and MPS, Slurm, Ray, monitoring."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.evidence import Kind
from shoal.diagnosis.parsers.message import PLUGIN_KINDS, Message, seen
from shoal.diagnosis.signs import Sign

_SLURM = frozenset({Kind.SLURM, Kind.JOURNAL, Kind.NOTE, Kind.RUNTIME_CONFIG, Kind.NODE})
_DRA = frozenset({Kind.DRA_LOG, Kind.CLAIM, Kind.PLUGIN_LOG, Kind.PODS, Kind.POD_EVENTS, Kind.NOTE, Kind.KUBELET, Kind.NODE})

LABELS: Final[tuple[Message, ...]] = (
    seen(
        Sign.EVICTION_BLOCKED,
        r"(?:eviction|drain)\b.{0,60}disabled by the upgrade policy",
        r"cannot evict pod as it would violate",
        r"(?:failed|error|unable).{0,20}(?:evict|drain)\w* ",
        kinds=frozenset({Kind.DRIVER_LOG, Kind.OPERATOR_LOG, Kind.PODS, Kind.POD_EVENTS, Kind.NOTE}),
    ),
    seen(
        Sign.NO_GPU_NODES,
        r"could not get any nodes to match nvidia\.com/gpu\.present",
        r"no gpu nodes? (?:can be )?(?:found|in the cluster|detected)",
        r"number of (?:gpu )?nodes with gpu label\S*\W+(?:nodecount\W+)?0\b",
        r"\"?hasgpunodes?\"?\W+false",
        r"no nodes? (?:with|match\w*) .{0,20}gpu",
    ),
    seen(
        Sign.NO_KERNEL_LABEL,
        r"could not find kernel full version",
        r"couldn'?t get kernelversion",
        r"did you run the node feature discovery",
        r"failed to get kernel version",
    ),
    seen(
        Sign.NFD_MISSING,
        r"\bnfd\b.{0,40}(?:not (?:installed|running|deployed|found|ready)|missing|absent|crash|error|fail|evicted|pending|imagepull)",
        r"no nfd\b",
        r"no nfd labels",
        r"node-feature-discovery\S*.{0,60}(?:crash|error|fail|not (?:running|ready)|pending|imagepull|0/1)",
        r"nfd labels? (?:\w+ )?(?:not|missing|absent)",
        r"failed to (?:create|update) (?:nodefeature|node feature)",
    ),
    seen(
        Sign.NO_OPERAND_PODS,
        r"\bno\b[^.;\n]{0,50}\b(?:daemonset|operand|driver|toolkit|plugin|device.plugin|gpu.operator|nvidia)\S*[^.;\n]{0,24}\bpods?\b",
        r"no operands?\b",
        r"desired\W{1,3}0\b",
        r"daemonsets?.{0,30}(?:desired 0|0 desired|not (?:created|scheduled))",
        r"pods? (?:are )?not (?:scheduled|created) on (?:the|this) node",
    ),
)

PLUGIN: Final[tuple[Message, ...]] = (
    seen(
        Sign.REGISTER_FAILED,
        r"could not register device plugin",
        r"failed to register (?:device )?plugin",
        r"could not contact kubelet",
        r"(?:register|registration)\S* .{0,60}(?:refused|deadline exceeded|connection error|failed)",
        r"error (?:starting|serving) grpc server",
        kinds=PLUGIN_KINDS | {Kind.KUBELET},
    ),
    seen(Sign.NOT_DISCOVERED, r"gpu resources are not (?:yet )?discovered"),
    seen(
        Sign.PLUGIN_CONFIG_BAD,
        r"unable to (?:load|parse|find|validate|read) (?:the )?(?:config|flags)",
        r"error (?:parsing|loading) config",
        r"(?:specified )?config \S+ (?:does not exist|not found)",
        r"no such config",
        r"unknown (?:field|flag|resource)",
        r"invalid (?:resource name|device id|config|option|value|strategy)",
        r"error (?:unmarshal\w+|decoding)",
        r"yaml: ",
        kinds=PLUGIN_KINDS,
    ),
    seen(
        Sign.TOO_MANY_FILES,
        r"too many open files",
        r"inotify.{0,40}(?:limit|fail)",
        r"no space left on device.{0,20}inotify",
        r"failed to create fs watcher",
        kinds=PLUGIN_KINDS | {Kind.KUBELET},
    ),
    seen(
        Sign.SHARED_LIMIT,
        r"maximum request size for shared resources is (?P<limit>\d+);? found (?P<found>\d+)",
        r"request for .{0,40}too large",
    ),
    seen(
        Sign.MARKED_UNHEALTHY,
        r"marked (?:as )?unhealthy|marking.{0,30}unhealthy|will go unhealthy",
        r"(?:is|are|became|went|reported|all|devices?|gpu\S*) unhealthy\b",
        r"health\W{1,4}unhealthy",
        r"^unhealthy (?:device|gpu)",
    ),
    seen(
        Sign.PLUGIN_START_FAILED,
        r"failed to start one or more plugins",
        r"failed to start plugin",
        r"error starting plugins?",
        kinds=PLUGIN_KINDS,
    ),
    seen(Sign.PLUGIN_GONE, r"allocate failed.{0,120}(?:transport is closing|\beof\b|connection refused|code = unavailable)"),
    seen(
        Sign.ROUTE_SOCKET,
        r"nvidia-gpu\.sock.{0,40}(?:no such file|missing|refused|absent|not found)",
        r"device-plugins.{0,30}(?:empty|no such file|no nvidia)",
    ),
    seen(Sign.REPLICAS, r"time-?slicing", r"replicas\W{1,3}\d", r"gpu\.shared\b", r"-shared\b"),
    seen(Sign.PLUGIN_OLD, r"(?:two|duplicate|another|second|multiple) (?:nvidia )?device.?plugins?"),
)

DRA: Final[tuple[Message, ...]] = (
    seen(
        Sign.DRA_NOT_REGISTERED,
        r"dra driver (?P<name>[\w.-]+) is not registered",
        r"plugin name (?P<plugin>[\w.-]+) not found in the list of registered",
        r"(?:driver|plugin) \S+ (?:is )?not (?:found in the list of )?registered (?:dra|plugins?|drivers?)",
    ),
    seen(Sign.DRA_TIMEOUT, r"(?:prepare|noderesources|nodepreparere\w+)\S*.{0,120}(?:deadlineexceeded|deadline exceeded|timed out)"),
    seen(
        Sign.DRA_PREPARE_FAILED,
        r"failedpreparedynamicresources",
        r"error preparing devices? for claim",
        r"nodeprepareresources.{0,60}(?:fail|error)",
        r"failed to prepare (?:dynamic resources|claim)",
        r"unprepare.{0,40}(?:fail|error)",
    ),
    seen(
        Sign.DRA_SLICE_EMPTY,
        r"(?:none|nothing|no devices|not) published",
        r"resourceslices?\b.{0,40}(?:empty|no devices|\b0 devices|\bnone\b|missing|not published|absent|without devices|stale)",
        r"no resourceslices?",
        r"devices\W{1,4}\[\s*\]",
        r"\bempty (?:resource)?slices?",
        r"published 0 devices",
        r"no devices (?:published|to publish|enumerated)",
        kinds=_DRA,
    ),
    seen(
        Sign.DRA_API_OFF,
        r"device ?class \S+ (?:does not exist|not found)",
        r"could not find the requested resource.{0,60}resource",
        r"resource\.k8s\.io\S*.{0,40}(?:not (?:found|served|enabled|available)|disabled|no matches)",
        r"no matches for kind \W?(?:deviceclass|resourceclaim|resourceslice)",
        r"dynamicresourceallocation.{0,30}(?:disabled|false|not enabled)",
    ),
    seen(
        Sign.DRA_PLUGIN_FAILED,
        r"processing resourceslice objects.{0,20}err|create resource slice:.{0,120}invalid",
        r"(?:no|without|does ?n.t include)\b.{0,40}driver .{0,3}gpu\.nvidia\.com",
        r"error (?:creating|starting|initiali[sz]ing) (?:dra )?driver",
        r"failed to (?:start|create|publish).{0,30}(?:dra|kubelet plugin|resourceslices?|kubeletplugin)",
        r"compute-?domain.{0,60}(?:fail|error|not ready|timed out|waiting)",
        r"error (?:enumerating|publishing).{0,30}devices",
        kinds=_DRA,
    ),
    seen(
        Sign.CLAIM_UNALLOCATABLE,
        r"cannot allocate all claims",
        r"claim.{0,30}(?:not (?:yet )?allocated|pending|unallocat)",
        r"no device.{0,30}(?:match|satisf)",
        r"waiting for (?:resource)?claim",
    ),
    seen(
        Sign.CLAIM_PREPARED,
        r"nodeprepareresources (?:ok|succeeded|success)",
        r"claim.{0,30}(?:prepared|allocated and reserved)",
        r"prepare (?:returned )?(?:ok|success)",
        kinds=_DRA,
    ),
)

KUBELET: Final[tuple[Message, ...]] = (
    seen(Sign.ADMISSION_COUNT, r"requested number of devices unavailable.{0,80}?requested:? (?P<asked>\d+),? available:? (?P<free>\d+)"),
    seen(
        Sign.PREFERRED_FAILED,
        r"getpreferredallocation.{0,80}(?:fail|error|lost)",
        r"failed to get preferred allocation",
        r"(?:allocate|getpreferredallocation).{0,40}(?:returned an error|rpc (?:error|failed))",
    ),
    seen(Sign.TOPOLOGY_AFFINITY, r"topologyaffinityerror", r"cannot be allocated with topology locality", r"topology affinity"),
    seen(Sign.NO_HEALTHY_LEFT, r"no healthy devices present", r"cannot allocate unhealthy devices"),
    seen(
        Sign.CHECKPOINT_BAD,
        r"checkpoint is corrupted",
        r"kubelet_internal_checkpoint.{0,60}(?:corrupt|error|mismatch|unmarshal)",
        r"(?:cpu_manager|memory_manager)_state.{0,40}(?:corrupt|mismatch|invalid)",
        r"could not restore state from checkpoint",
    ),
    seen(Sign.KUBELET_VERSION, r"kube(?:let|rnetes)\D{0,20}v?(?P<version>1\.\d{1,2}\.\d{1,2})\b"),
    seen(Sign.KUBELET_SOCKET, r"kubelet\.sock.{0,60}(?:no such file|refused|not found|missing|does not exist)"),
    seen(Sign.ADMISSION_OTHER, r"unexpectedadmissionerror", r"allocate failed due to"),
    seen(Sign.KUBELET_RESTARTED, r"kubelet (?:was )?restart", r"restarted? (?:the )?kubelet", r"kubelet upgrade"),
    seen(Sign.NUMA_POLICY, r"single-numa-node", r"topology.?manager.?policy\W{1,3}(?:restricted|single)", r"topologymanagerpolicy"),
)

SCHEDULER: Final[tuple[Message, ...]] = (
    seen(Sign.INSUFFICIENT, r"insufficient (?P<resource>nvidia\.com/[\w.-]+|amd\.com/gpu|gpu\b)"),
    seen(
        Sign.TAINTED,
        r"untolerated taint\S* ?\{?(?P<taint>[^}:,\s]*)",
        r"had (?:untolerated )?taints?",
        r"didn'?t tolerate",
        r"(?:no|missing|without|lacks?) (?:a |the |matching )*toleration",
    ),
    seen(
        Sign.SELECTOR,
        r"didn'?t match pod'?s node (?:affinity|selector)",
        r"node\(s\) didn'?t match",
        r"(?:node)?selector.{0,40}(?:no (?:such )?node|not match|matches no|does not exist)",
    ),
    seen(
        Sign.QUOTA,
        r"exceeded quota",
        r"quota exceeded",
        r"exceeds? (?:the )?(?:namespace )?quota",
        r"insufficient quota",
        r"quota.{0,30}(?:exhausted|used up|reached)",
    ),
    seen(Sign.UNSCHEDULABLE_NODE, r"node\(s\) were unschedulable", r"schedulingdisabled", r"node is cordoned"),
    seen(
        Sign.CARD_REASON,
        r"\b(?:cardinsufficient(?:memory|core)|cardtimeslicingexhausted|cardnothealth|cardcordoned|numanotfit|nodeinsufficientdevice|card(?:type|uuid)mismatch|exclusivedeviceallocateconflict|nodeunfitpod)\b",
    ),
    seen(Sign.GPUSHARE, r"no-gpu-has-\S+", r"gpushare.{0,40}(?:insufficient|not enough)"),
    seen(Sign.FAILED_SCHEDULING, r"failedscheduling", r"\d+/\d+ nodes are available"),
)

MIG: Final[tuple[Message, ...]] = (
    seen(
        Sign.MIG_NOT_CONFIGURED,
        r"migenabled=true was not configured",
        r"no mig devices (?:are )?associated",
        r"has no mig devices",
        r"(?:no|without|0) (?:mig )?(?:gpu|compute) instances?",
        r"no mig (?:devices|instances)\b",
        r"mig enabled.{0,20}(?:no|without|0) instances?",
        r"mig instances?.{0,30}(?:gone|lost|missing|disappeared|not (?:created|restored))",
    ),
    seen(
        Sign.MIG_MIXED,
        r"more than one mig device type",
        r"same migenabled value",
        r"mig-invalid",
        r"invalid mig (?:layout|strategy|config)",
        r"(?:mixed|different) mig (?:profiles|layouts?|types).{0,40}single",
    ),
    seen(
        Sign.MIG_NO_ROOM,
        r"(?:instance|mig)\b.{0,60}insufficient resources",
        r"insufficient resources.{0,40}(?:instance|mig)",
        r"no (?:free|available) (?:mig )?placement",
        r"unable to create (?:a )?(?:gpu|compute) instance",
    ),
    seen(
        Sign.MIG_PENDING,
        r"mode change pending\W{1,3}true",
        r"mig (?:mode )?(?:is )?(?:in )?pending",
        r"pending mig",
        r"mig mode.{0,40}pending\W{1,4}(?:en|dis)abled",
    ),
    seen(
        Sign.MIG_IN_USE,
        r"in use by another client.{0,80}mig",
        r"mig.{0,80}in use by another client",
        r"unable to (?:enable|disable|set|change) mig",
        r"(?:enabling|disabling|setting|toggl\w+) mig.{0,40}(?:fail|error|not supported|insufficient)",
        r"(?:failed|error|cannot|could not).{0,20}(?:enable|disable|set|setting|change|toggle) mig",
    ),
    seen(
        Sign.MIG_CONFIG_BAD,
        r"(?:selected )?mig.?config\S*.{0,40}(?:not (?:found|present|valid)|does not exist|unknown|invalid|fail)",
        r"mig-(?:parted|manager)\S*.{0,60}(?:error|fail)",
        r"(?:error|failed|unable).{0,20}(?:setting|applying|apply|assert\w*|attempting).{0,40}(?:mig|config order)",
        r"multiple config orderings",
        r"not a valid mig profile",
        r"invalid mig profile",
        r"unsupported mig profile",
    ),
    seen(
        Sign.MIG_ON,
        r"mig.?(?:mode)?\W{0,3}(?:current\W{1,3})?enabled",
        r"mig m\w*\W{1,3}on",
        r"mig (?:is )?(?:on|enabled)\b",
        r"mig-enabled",
    ),
    seen(Sign.MIG_OFF, r"mig.?(?:mode)?\W{0,3}(?:current\W{1,3})?disabled", r"mig (?:is )?(?:off|disabled)\b"),
    seen(Sign.MIG_STRATEGY, r"mig.?strategy\W{1,4}(?P<strategy>single|mixed|none)", r"strategy (?P<other>single|mixed)"),
)

MPS: Final[tuple[Message, ...]] = (
    seen(
        Sign.MPS_FAILED,
        r"using mps requires",
        r"(?:waiting for|checking|start\w*|connect\w* to|send command to|contact) .{0,20}mps.{0,80}(?:fail|error|exit|not)",
        r"(?:error|failed|unable|cannot|could not).{0,40}\bmps\b",
        r"\bmps\b.{0,60}(?:fail|error|not (?:ready|running|found|supported)|terminated|refused|timed out)",
        r"cuda_error_mps",
        r"nvidia-cuda-mps-\w+.{0,60}(?:fail|error|not|exit|dead|crash)",
        r"\berror:? 80[5-9]\b",
        r"cudaerrormps",
    ),
    seen(
        Sign.MPS_ON,
        r"\bmps (?:is )?(?:on|enabled|running|in use)\b",
        r"sharing.?strategy\W{1,3}mps",
        r"mps\.capable\W{1,3}true",
        r"nvidia-cuda-mps-(?:server|control)",
        r"sharing\W{1,3}mps",
    ),
)

SLURM: Final[tuple[Message, ...]] = (
    seen(
        Sign.GRES_LOWER,
        r"gres/gpu\S* count (?:reported )?(?:lower than configured|too low)(?: \((?P<found>\d+) ?< ?(?P<asked>\d+)\))?",
        r"gres\S* count .{0,20}lower",
    ),
    seen(Sign.GRES_FILE, r"gres\.conf file \S+", r"waiting for gres\.conf file", r"can'?t stat .{0,20}gres"),
    seen(
        Sign.GRES_NO_NVML,
        r"able to find that lib when slurm was configured",
        r"gpu[/_]nvml\S*.{0,60}(?:not found|cannot|couldn'?t|no such|unable|fail)",
        r"(?:built|compiled) without nvml",
        r"autodetect=nvml.{0,60}(?:not|fail|nothing|0)",
    ),
    seen(Sign.GRES_NVML, r"autodetect\W{1,2}nvml", kinds=_SLURM),
    seen(Sign.GRES_DUPLICATE, r"duplicate records? for gpu", r"gres\.conf.{0,20}duplicate", r"duplicate.{0,20}gres"),
    seen(
        Sign.GRES_BAD,
        r"invalid generic resource",
        r"autodetected gpus are being ignored",
        r"discarding the following config-only gpu",
        r"gres\.conf.{0,60}(?:mismatch|invalid|fatal|bad|unable|error)",
        r"gres/gpu.{0,40}(?:mismatch|invalid|unknown|not (?:found|configured))",
        r"gres.?types?.{0,30}(?:missing|not|unknown)",
        r"invalid_reg",
        r"gres.{0,20}plugin.{0,30}(?:fail|not)",
        r"(?:cgroup\.conf|constraindevices).{0,40}(?:missing|no|not|absent)",
        kinds=_SLURM,
    ),
)

MONITORING: Final[tuple[Message, ...]] = (
    seen(Sign.DCGM_FAILED, r"oomkilled|crashloopbackoff|segmentation fault|liveness probe failed", kinds=frozenset({Kind.MONITOR})),
    seen(
        Sign.DCGM_PROFILING,
        r"third-party profiling module returned",
        r"profiling module.{0,40}(?:error|fail|unrecoverable|not loaded)",
        r"dcgm_fi_prof\S*.{0,40}(?:missing|absent|not|no data|n/a|\b0\b)",
    ),
    seen(
        Sign.DCGM_FAILED,
        r"(?:utili[sz]ation|metrics?|prometheus)\b.{0,30}\bn/a\b",
        r"dcgm\S*.{0,80}(?:fail|error|unable|not found|cannot|crash|oomkilled|timeout|timed out|segmentation)",
        r"nv-?hostengine.{0,60}(?:fail|error|exit|another)",
        r"(?:host ?engine).{0,40}(?:connect|fail|another|not running)",
        r"failed to (?:watch|get).{0,20}(?:fields|metrics|field group)",
        r"error (?:watching|collecting).{0,20}(?:fields|metrics)",
        r"metrics? (?:are |is )?(?:missing|absent|empty|stale)",
        r"no (?:gpu )?metrics",
        r"(?:grafana|prometheus|dashboard)\S*.{0,60}(?:no data|missing|n/a|empty)",
        r"failed to get (?:pod ?resources|all pods)",
        kinds=frozenset({Kind.MONITOR, Kind.NOTE, Kind.PODS, Kind.POD_EVENTS, Kind.JOURNAL}),
    ),
)

WAITING: Final[tuple[Message, ...]] = (
    seen(
        Sign.WAITING_STACK,
        r"waiting for nvidia container stack",
        r"toolkit-validation.{0,40}(?:waiting|running|init)",
        r"waiting for (?:the )?toolkit",
    ),
    seen(Sign.RUNTIME_RESTARTING, r"(?:containerd|crio|docker)\.sock: connect: (?:connection refused|no such file)"),
)
