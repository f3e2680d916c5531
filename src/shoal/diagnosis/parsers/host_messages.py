"""What is printed below the container wall: GPU and PCIe, kernel module, fabric, modes of a GPU."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.evidence import Kind, Side
from shoal.diagnosis.parsers.message import APP_KINDS, DRIVER_KINDS, Message, seen
from shoal.diagnosis.signs import Sign

_BUS = r"(?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?)"

HARDWARE: Final[tuple[Message, ...]] = (
    seen(Sign.OFF_BUS, rf"(?:{_BUS}.{{0,80}})?fallen off the bus"),
    seen(
        Sign.GPU_LOST,
        rf"unable to determine the device handle for gpu(?!.{{0,30}}not found)\s*(?:{_BUS})?",
        r"\bgpu[ _]is[ _]lost\b",
        r"device is lost",
        r"nvidia.*\(rev ff\)",
    ),
    seen(Sign.SXID, r"\bSXid\b[^:]*(?::[0-9a-f.:]+)?\)?:\s*(?P<code>\d{4,5})"),
    seen(Sign.ADAPTER_INIT_FAILED, r"rminitadapter(?:: | )?failed", r"rm_init_adapter(?:\(\))? failed"),
    seen(
        Sign.PROBE_FAILED,
        r"nvidia probe routine failed for (?P<count>\d+) device",
        r"probe with driver nvidia failed",
        r"nvidia: probe of .{0,20} failed with error",
    ),
    seen(
        Sign.BAR_INVALID,
        r"pci i/o region assigned to your nvidia device is invalid",
        r"nvrm: bar\d is \d+m @ 0x0\b",
        r"large.{0,10}bar.{0,30}(?:not|disabled)",
        r"(?:nvrm|nvidia).{0,60}above 4g",
    ),
    seen(
        Sign.PCIE_FATAL,
        r"pcie bus error: severity=(?:uncorrected \(fatal\)|uncorrectable \(fatal\)|fatal)",
        r"aer: uncorrected \(fatal\)",
        r"aer:.{0,40}uncorrectable \(fatal\)",
    ),
    seen(Sign.PCIE_LINK_DOWN, r"pciehp.{0,60}(?:link down|card not present|surprise)"),
    seen(
        Sign.POWER_CABLE,
        r"(?:auxiliary|external) power.{0,40}(?:not connected|missing|cable)",
        r"does not have the necessary power cables",
        r"power cables? (?:is|are)? ?not (?:connected|properly)",
    ),
    seen(
        Sign.ECC_UNCORRECTABLE,
        r"uncorrectable ecc error",
        r"cudaerroreccuncorrectable",
        r"double.?bit ecc",
        r"\bdbe\b.{0,20}(?:detected|error)",
        r"uncontained (?:memory|ecc) error",
    ),
    seen(Sign.ECC_COUNT, r"uncorr\w*\.? ?(?:ecc|err\w*)[^\d\n]{0,12}(?P<count>[1-9]\d*)"),
    seen(
        Sign.REMAP_FAILED,
        r"remapping failure(?: occurred)?\s*[:=]?\s*(?:yes|true|1\b)",
        r"row.?remap\w*.{0,20}fail(?:ed|ure)\b(?!.{0,14}(?:no\b|0\b|false))",
    ),
    seen(
        Sign.REMAP_PENDING,
        r"(?:row.?remap\w*|remapped rows|page retirement)[^\n]{0,30}pending\s*[:=]?\s*(?:yes|true|1\b)",
        r"pending (?:row.?remap|page retirement)\w*\s*[:=]?\s*(?:yes|true|\d)",
        r"(?:row.?remap\w*|page retirement) (?:is )?pending\b(?!\s*[:=]?\s*(?:no|0|false))",
    ),
    seen(
        Sign.HW_SLOWDOWN,
        r"(?:hw|hardware)[ _.-]?(?:thermal |power brake )?slowdown\W{1,4}active\b",
        r"power.?brake\w*(?: slowdown)?\W{1,4}active\b",
    ),
    seen(
        Sign.NVLINK_ERROR,
        r"nvlink.{0,50}(?:fatal|crc|replay|recovery|error)s?.{0,30}[1-9]\d*",
        r"nvlink.{0,30}(?:link down|training failed)",
    ),
    seen(Sign.NVLINK_INACTIVE, r"link \d+:? *<?inactive>?", r"nvlinks?.{0,20}\binactive\b"),
    seen(
        Sign.DIAG_FAILED,
        r"(?:dcgmi? diag|diagnostic).{0,80}\bfail(?:ed)?\b",
        r"\|\s*(?:gpu memory|memory|pcie|targeted (?:stress|power)|sm stress)\s*\|\s*fail",
    ),
)

DRIVER: Final[tuple[Message, ...]] = (
    seen(Sign.SMI_NO_DRIVER, r"could(?:n'?t| not) communicate with the nvidia driver"),
    seen(
        Sign.VERSION_MISMATCH, r"driver/library version mismatch", r"lib_rm_version_mismatch", r"driver.{0,5}library (?:version )?mismatch"
    ),
    seen(Sign.API_MISMATCH, r"api mismatch:? the client(?: '[^']*'| \(\S+\))? has (?:the )?version (?P<client>[\d.]*\d)"),
    seen(Sign.MODULE_VERSION, r"this kernel module has (?:the )?version (?P<version>[\d.]*\d)"),
    seen(Sign.LIBRARY_VERSION, r"nvml library version:? (?P<version>[\d.]*\d)"),
    seen(
        Sign.MODULE_NOT_LOADED,
        r"nvidia kernel module (?:is )?not loaded",
        r"(?<!nvswitch )driver not loaded",
        r"/proc/driver/nvidia\S*.{0,30}(?:no such file|missing|absent|not found|does not exist)",
        r"(?:kernel )?module '?nvidia'? (?:is )?not loaded",
        r"nvidia (?:kernel )?(?:module|driver)s? (?:is |are )?not (?:loaded|installed|running)",
        r"lsmod.{0,40}(?:no nvidia|empty|nothing)",
        r"no nvidia (?:kernel )?module",
    ),
    seen(Sign.MODULE_NOT_FOUND, r"module '?nvidia\S* not found"),
    seen(
        Sign.MODULE_LOAD_FAILED,
        r"unable to load the (?:kernel module )?'?\"?nvidia",
        r"could not insert '?\"?nvidia(?!.peermem)",
        r"insmod:? .{0,60}nvidia\S*\.ko",
        r"failed to (?:load|insert) (?:the )?(?:nvidia )?(?:kernel )?module",
        r"nvidia\S*: (?:disagrees about version of|unknown) symbol",
        r"failed to load (?:the )?nvidia",
    ),
    seen(
        Sign.UNSIGNED,
        r"loading of unsigned module is rejected",
        r"loading of module with unavailable key is rejected",
        r"key was rejected by service",
        r"required key not available",
        r"(?:is )?not signed (?:by|with) a (?:trusted )?key",
        r"unsigned module loading is restricted",
        r"module signing key.{0,30}not (?:enrolled|trusted)",
    ),
    seen(
        Sign.NOUVEAU,
        r"such as: nouveau",
        r"driver in use:\s*nouveau",
        r"nouveau (?:kernel )?(?:driver )?(?:is )?(?:currently )?(?:in use|loaded)",
        r"^nouveau\s+\d{4,}",
        r"nouveau \d{4}:[0-9a-f]{2}:\S+ .{0,40}(?:nvidia|bios|vram|fb)",
        r"nouveau.{0,30}(?:owns|bound|took)",
    ),
    seen(Sign.PROBE_NOT_CALLED, r"nvidia probe routine was not called for (?P<count>\d+) device"),
    seen(
        Sign.HEADERS_MISSING,
        r"could not resolve linux kernel version",
        r"linux-headers-\S+.{0,60}(?:not located|unable to locate|not found|no installation candidate|not available)",
        r"unable to locate package linux-(?:headers|image|modules)",
        r"couldn't find any package by (?:glob|regex) '(?:linux-headers|linux-image)",
        r"(?:no match for argument|unable to find a match|no package|nothing provides"
        r"|error: unable to find)\S*:? \S*kernel-(?:headers|devel|core|modules)",
        r"kernel-(?:headers|devel)\S* .{0,30}(?:not found|not available|missing|could not)",
        r"kernel headers for kernel \S+ cannot be found",
        r"unable to find the kernel source tree",
        r"(?:kernel|linux)[ -](?:headers|source)s?\b.{0,50}(?:not found|missing|not installed|could not be found|cannot find"
        r"|not available)",
        r"(?:could not|cannot|failed to|unable to) (?:find|locate|fetch|install|download|resolve).{0,30}(?:linux"
        r"|kernel)[ -](?:headers|devel|source|packages)",
        kinds=DRIVER_KINDS,
    ),
    seen(
        Sign.BUILD_FAILED,
        r"unable to build the (?:nvidia )?kernel module",
        r"bad return status for module build",
        r"performing the step: \"?building kernel modules",
        r"the kernel module failed to build",
        r"make(?:\[\d+\])?: \*\*\*.{0,60}(?:modules|nvidia|error 2)",
        r"dkms.{0,40}(?:build|autoinstall|install).{0,30}(?:fail|error)",
        r"failed to (?:build|compile).{0,30}(?:kernel )?module",
        r"error: implicit declaration of function",
        r"you (?:are using|appear to be compiling).{0,60}(?:gcc|compiler)",
        r"compiler.{0,30}(?:mismatch|does not match|differs)",
        r"error:? .{0,40}conftest",
        kinds=DRIVER_KINDS,
    ),
    seen(
        Sign.OPEN_MODULE,
        r"requires use of the nvidia open kernel modules",
        r"not supported by (?:the )?open nvidia\.ko",
        r"does not include the required gpu system processor",
        r"(?:open|proprietary) kernel modules?.{0,30}(?:not support|required|incompatible)",
        r"needs? the open (?:kernel )?modules?",
    ),
    seen(
        Sign.DRIVER_TOO_OLD_FOR_GPU,
        r"is not supported by the nvidia [\d.]+ driver",
        r"supported through the nvidia .{0,30}legacy drivers",
        r"nvrm: no nvidia (?:gpu|graphics adapter) found",
        r"unsupported gpu.{0,30}driver",
    ),
    seen(
        Sign.GSP_FAILED,
        r"rminitadapter failed! \(0x62:",
        r"cannot initialize gsp firmware",
        r"gsp_\w+\.bin.{0,60}(?:fail|error)",
        r"failed to (?:load|find|fetch).{0,40}gsp",
        r"gsp (?:firmware )?(?:rm )?(?:init|boot)\w*.{0,20}(?:fail|timeout)",
        r"timeout.{0,40}waiting for.{0,20}gsp",
        r"_kgsp\w+.{0,60}fail",
    ),
    seen(
        Sign.DRIVER_BUSY,
        r"could not unload nvidia driver",
        r"(?:driver|module nvidia\S*) is in use\b(?! by)",
        r"failed to unload.{0,30}nvidia",
        r"module nvidia\S* is in use by",
        r"nvidia\S* is currently in use",
        r"resource busy.{0,30}nvidia driver",
        r"driver is currently in use",
        kinds=DRIVER_KINDS | {Kind.SMI},
    ),
    seen(
        Sign.DRIVER_CONTAINER_NOT_READY,
        r"\.driver-ctr-ready",
        r"nvidia driver daemons are not ready",
        r"chroot: failed to run command .?nvidia-smi",
        r"/run/nvidia/driver\S*:? .{0,20}no such file",
        r"failed to validate the driver",
        r"driver is not ready",
        r"waiting for (?:the )?nvidia driver",
        r"startup probe failed.{0,80}(?:nvidia|driver)",
    ),
    seen(Sign.PEERMEM, r"nvidia_peermem.{0,60}(?:invalid argument|unknown symbol|could not|fail)", r"could not insert 'nvidia_peermem"),
    seen(Sign.SMI_NO_DEVICES, r"no devices were found"),
    seen(
        Sign.SMI_HANGS,
        r"nvidia-smi.{0,40}(?:\bhangs?\b|\bhung\b|timed ?out|timeout|stuck|never returns|no output for)",
        r"task nvidia-smi\S* blocked for more than",
        r"nvidia-smi.{0,20}uninterruptible",
    ),
    seen(
        Sign.DRIVER_IMAGE_MISSING,
        r"(?:nvidia/|/)driver:\S+.{0,80}(?:not found|manifest unknown|no such|denied)",
        r"(?:precompiled|driver) image.{0,60}(?:not found|does not exist|not available|missing)",
        r"manifest for \S*driver:\S+ not found",
    ),
    seen(
        Sign.PACKAGE_UPGRADED,
        r"(?:upgrade|upgraded|update|unpacking|setting up"
        r"|unattended).{0,60}(?:lib)?nvidia-\S+.{0,40}?\(?(?P<old>\d{3}\.[\d.]+)\S*?(?:,| ->| to|\) over \()\s*\(?(?P<new>\d{3}\.[\d.]+)",
        kinds=frozenset({Kind.PACKAGES, Kind.JOURNAL, Kind.NOTE, Kind.HOST}),
    ),
    seen(
        Sign.DRIVER_RPC,
        r"initialization error: (?:driver (?:rpc )?error|cuda error|nvml error: (?:driver not loaded|unknown|gpu is lost))",
        r"nvidia-modprobe.{0,40}(?:fail|error)",
    ),
    seen(Sign.SECURE_BOOT, r"secure ?boot (?:is )?(?:on|enabled)", r"secureboot enabled"),
    seen(Sign.SUSPEND, r"after (?:suspend|resume|sleep|hibernat)", r"resumed from suspend"),
    seen(Sign.NVRM_OTHER, r"nvrm: (?:gpu|rm|nv|os).{0,60}(?:fail|error|timeout)"),
)

FABRIC: Final[tuple[Message, ...]] = (
    seen(
        Sign.CUDA_802,
        r"system not yet initialized",
        r"\berror:? 802\b",
        r"system_not_ready",
        r"cudaerrorsystemnotready",
        r"\bcuinit\b.{0,30}\b802\b",
        r"error code:? 802\b",
    ),
    seen(
        Sign.FABRIC_NOTHING,
        r"nv_warn_nothing_to_do",
        r"nvswitch.{0,60}nothing to do",
        r"no nvswitch(?:es)? (?:found|present|detected)",
        r"does not have any nvswitch",
    ),
    seen(
        Sign.FABRIC_VERSION,
        r"fabric ?manager nvidia gpu driver interface version.{0,80}(?:don'?t|do not|does not|doesn'?t|not) match",
        r"fabric ?manager.{0,80}version.{0,40}(?:mismatch|differ|not match|incompatible)",
        r"fabric ?manager.{0,20}(?P<client>\d{3}\.[\d.]+).{0,40}(?:but|vs\.?|!=|against).{0,20}driver.{0,12}(?P<module>\d{3}\.[\d.]+)",
    ),
    seen(
        Sign.FABRIC_DOWN,
        r"fabric[ -]?manager\S*.{0,60}(?:\binactive\b|\bfailed\b|not running|not installed|\bdead\b|could not be found|\bmissing\b"
        r"|not (?:been )?started|crash|exited|disabled|\bstopped\b|absent|not found)",
        r"(?:failed|unable) to start .{0,30}fabric ?manager",
        r"no fabric ?manager",
        r"without (?:a running )?fabric ?manager",
    ),
    seen(
        Sign.NVSWITCH_FAILED,
        r"(?:fail\w*|unable|error).{0,40}\bnvswitch",
        r"nvswitch\S*:? .{0,60}(?:fatal|fail|error|timed? ?out|not responding)",
        r"fabric manager.{0,60}(?:fatal|fail(?:ed|ure)?|error|abort)",
        r"\bfm_\w+ ?(?:error|fail)",
    ),
    seen(
        Sign.NVLS,
        r"(?:fail\w*|error|warn)\b.{0,120}nvls",
        r"nvls.{0,80}(?:fail|error|warn)",
        r"nvlink sharp.{0,60}(?:fail|error)",
        r"multicast.{0,60}(?:cuda (?:failure|error)|fail)",
        r"cumulticast\w+.{0,40}(?:fail|error)",
    ),
    seen(
        Sign.IMEX,
        r"\bimex\b.{0,60}(?:not (?:ready|running|started|found)|fail|error|unavailable|down|degraded|missing|inactive|timed? ?out)",
        r"nvidia-imex.{0,40}(?:fail|inactive|dead)",
    ),
    seen(Sign.FABRIC_STATE, r"fabric.{0,20}state\W{1,4}(?P<state>in progress|not started|not supported|completed)"),
    seen(
        Sign.NVSWITCH,
        r"\bhgx\b",
        r"\bdgx\b(?! spark)",
        r"\bnvswitch(?:es)?\b",
        r"8 ?x ?(?:nvidia )?(?:[abh][1-3]00)",
        r"\bnvl72\b",
        r"8 x .{0,14}sxm",
        r"\bgb[23]00\b",
        kinds=frozenset({Kind.HARDWARE, Kind.NODE, Kind.HOST, Kind.SMI, Kind.SMI_HOST, Kind.LABELS, Kind.LISTING}),
    ),
)

GPU_STATE: Final[tuple[Message, ...]] = (
    seen(
        Sign.DEVICES_BUSY,
        r"all cuda-capable devices are busy or unavailable",
        r"cudaerrordevicesunavailable",
        r"cuda_error_device_unavailable",
        r"cuda-capable device\(s\) is/are busy",
        r"\berror:? 46\b",
    ),
    seen(
        Sign.EXCLUSIVE_MODE,
        r"compute.?mode\W{1,4}(?:exclusive|prohibited|e\. ?process)",
        r"\be\. ?process\b",
        r"exclusive[_ -]?process",
        r"exclusive compute mode",
        r"compute mode (?:is |set to )?(?:exclusive|prohibited)",
    ),
    seen(
        Sign.RESET_REQUIRED,
        r"gpu requires (?:a )?reset|nv_err_reset_required|: reset required\b",
        r"reset required\W{1,4}yes",
        r"gpu reset (?:is )?required",
        r"requires? a gpu reset",
        r"recovery action\W{1,4}(?:gpu )?(?P<action>reset|reboot|drain p2p|drain and reset)",
        r"gpu needs? (?:a )?reset",
    ),
    seen(
        Sign.CC_NOT_READY,
        r"(?:conf\w*.?compute|\bcc\b).{0,40}(?:not.?ready|ready.?state\W{1,4}(?:not|off|false))",
        r"gpus? ready state\W{1,4}not",
    ),
    seen(
        Sign.ORPHAN_MEMORY,
        r"memory.{0,50}(?:used|occupied|held|allocated).{0,50}(?:no|without) (?:visible |running |gpu )*process",
        r"zombie.{0,30}(?:gpu|process)",
        r"(?:no|without) (?:visible |running )*process\w*.{0,40}memory.{0,20}(?:used|occupied|held|in use)",
    ),
    seen(
        Sign.VGPU_UNLICENSED,
        r"\bunlicensed\b",
        r"vgpu.{0,40}licen[sc]e.{0,30}(?:fail|expired|not|missing)",
        r"failed to acquire licen[sc]e",
    ),
    seen(
        Sign.ECC_MODE_PENDING, r"ecc mode.{0,20}pending.{0,10}(?:dis|en)abled.{0,40}current", r"ecc.{0,20}(?:change|mode) (?:is )?pending"
    ),
    seen(
        Sign.CLOCKS_CAPPED,
        r"clocks? (?:are )?(?:locked|capped|throttled)",
        r"power limit.{0,30}(?:lower|reduced|capped)",
    ),
)

PRESENT: Final[tuple[Message, ...]] = (
    seen(Sign.NO_PROCESSES_SHOWN, r"nvidia-smi.{0,60}(?:not (?:show|list|see)|shows? no|without|no) (?:\w+ ){0,3}process"),
    seen(
        Sign.BENIGN,
        r"module verification failed: signature|tainting kernel|loading out-of-tree module|unable to open 'kernel/dkms\.conf'",
        r"detected non-tegra platform|skipping line \d+|not collecting (?:dcp|nvlink|nvswitch|cpu)|x library path|vulkan icd|libglvnd",
        r"persistence mode is (?:deprecated|disabled)|nvidia-drm module will not be installed|selected configuration not currently applied",
    ),
    seen(Sign.DEV_CHAR, r"failed to create symlinks under /dev/char", r"error creating symlink creator"),
    seen(
        Sign.MODULE_LOADED,
        r"nvrm version:",
        r"nvrm: loading nvidia",
        r"(?:driver )?module (?:is )?loaded\b",
        r"^nvidia\s+\d{6,}\s+\d+",
        r"nvidia driver loaded",
        side=Side.HOST,
    ),
    seen(
        Sign.DAEMON_RELOAD,
        r"daemon[- ]reload",
        r"systemctl reload",
        r"after some (?:hours|days|time)",
        r"(?:after|every) (?:a )?(?:few|several|\d+) (?:hours|days)",
        r"suddenly lost",
        r"worked (?:until|before|at first)",
    ),
    seen(
        Sign.REBOOTED,
        r"\b(?:after|following) (?:a |the |node )*(?:reboot|restart|power cycle)",
        r"node (?:was )?rebooted",
        r"rebooted the node",
    ),
    seen(
        Sign.DEV_NODES_MISSING,
        r"no /dev/nvidia\S*",
        r"/dev/nvidia\S*(?: and \S+)?.{0,20}(?:missing|absent|does not exist|did not exist|not present|no such file)",
        r"(?:ls|stat): cannot access '?/dev/nvidia",
    ),
    seen(
        Sign.SMI_NEVER_RAN,
        r"(?:nvidia-smi|first client) (?:was )?never run",
        r"never ran nvidia-smi",
        r"no (?:gpu )?client (?:has )?(?:ever )?ran",
    ),
    seen(Sign.CUDA_UNKNOWN, r"cuda unknown error", r"cuda_error_unknown", r"\berror:? 999\b", r"cudaerrorunknown", kinds=APP_KINDS),
)
