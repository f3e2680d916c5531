"""What is printed at the container wall: toolkit and hook, CDI, runtime, device rules, sandboxes."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.evidence import Kind
from shoal.diagnosis.parsers.message import OPERAND_KINDS, PLUGIN_KINDS, POD_KINDS, Message, seen
from shoal.diagnosis.signs import Sign

_GONE = r"(?:no such file|not found|does not exist)"
_RUNTIME_KINDS = frozenset({Kind.RUNTIME_CONFIG, Kind.HOST, Kind.NODE, Kind.NOTE, Kind.JOURNAL, Kind.TOOLKIT_LOG, Kind.CONTAINER_LOG})

TOOLKIT: Final[tuple[Message, ...]] = (
    seen(
        Sign.CLI_DEVICE_RULES,
        r"failed to add device rules",
        r"bpf_prog_(?:query|attach|load)\S*.{0,40}(?:fail|not permitted|denied)",
        r"unable to find any existing device filters",
    ),
    seen(Sign.CLI_CGROUP_V2, r"cgroup subsystem devices not found", r"failed to get device cgroup"),
    seen(Sign.CLI_LDCACHE, r"ldcache error", r"ldconfig\S*.{0,40}(?:no such file|error|fail|process .*terminated)"),
    seen(
        Sign.CLI_NO_NVML,
        r"initialization error:.{0,30}load library failed: ?libnvidia-ml",
        r"initialization error: cannot open shared object",
    ),
    seen(
        Sign.CLI_MOUNT_EXISTS,
        r"mount error:.{0,200}file exists",
        r"file creation failed:.{0,160}(?:libcuda|libnvidia|nvidia)\S*.{0,20}file exists",
    ),
    seen(
        Sign.CLI_PERMISSION,
        r"nvidia-container-(?:cli|runtime|toolkit)\S*.{0,120}(?:insufficient permissions|permission denied|operation not permitted)",
        r"initialization error: nvml error: insufficient permissions",
    ),
    seen(Sign.CLI_UNKNOWN_DEVICE, r"device error:.{0,40}unknown device", r"unknown device id"),
    seen(
        Sign.CLI_OTHER,
        r"nvidia-container-cli: ",
        r"error running (?:prestart )?hook.{0,80}nvidia",
        r"nvidia-container-runtime-hook.{0,40}(?:fail|error|exit)",
    ),
    seen(Sign.NO_GPU_ENGINE, r"could not select device driver(?! .{0,3}cdi)"),
    seen(
        Sign.MIG_MONITOR,
        r"memory info\w*: insufficient permissions",
        r"insufficient permissions",
        kinds=PLUGIN_KINDS | {Kind.MONITOR, Kind.SMI_CONTAINER},
    ),
    seen(
        Sign.HOOK_MISSING,
        rf"nvidia-container-(?:runtime-hook|cli|toolkit)\S*.{{0,60}}(?:executable file not found|{_GONE}|not installed)",
        rf"nvidia-c(?:tk|di-hook)\S*.{{0,60}}(?:executable file not found|{_GONE})",
        r"nvidia.container.toolkit (?:is )?(?:not installed|missing)",
    ),
    seen(
        Sign.TOOLKIT_SETUP,
        r"(?:could not|unable to|failed to|error).{0,12}configur\w*.{0,20}(?:cri-?o|containerd|docker)",
        r"unable to (?:setup|set up) runtime",
        r"error running nvidia-toolkit",
        r"unable to (?:restart|signal|reload) (?:containerd|docker|cri-?o)",
        r"error (?:configuring|setting up) (?:the )?(?:container )?(?:runtime|toolkit)",
        r"unable to (?:load|update|flush|determine).{0,40}(?:containerd|docker|cri-?o|runtime).{0,20}config",
        kinds=frozenset({Kind.TOOLKIT_LOG, Kind.PODS, Kind.NOTE, Kind.CONTAINER_LOG, Kind.POD_EVENTS, Kind.OPERATOR_LOG}),
    ),
    seen(Sign.SELINUX, r"avc:\s+denied.{0,200}(?:nvidia|xserver_misc_device|container_t)", r"selinux.{0,60}(?:den|block|prevent)"),
    seen(
        Sign.CAPABILITIES,
        r"lib(?:nvidia-encode|nvcuvid|nvoptix|glx_nvidia|egl_nvidia|nvidia-fbc|nvidia-opticalflow)\S*.{0,40}(?:cannot open|not found"
        r"|could not|no such file)",
        r"cannot load lib(?:nvcuvid|nvidia-encode)",
        r"driver_capabilities.{0,40}(?:lack|missing|without|only|not)",
    ),
)

CDI: Final[tuple[Message, ...]] = (
    seen(Sign.CDI_UNRESOLVED, r"unresolvable cdi devices?:? (?P<kind>[\w./-]+)=(?P<id>[\w.:-]+)", r"unresolvable cdi devices?"),
    seen(
        Sign.CDI_GENERATE,
        r"fail(?:ed|ure) to (?:generate|create|write|save|get).{0,30}cdi (?:spec|device)",
        r"error (?:generating|creating).{0,20}cdi",
        r"cdi spec\w*.{0,30}(?:not generated|could not be generated)",
    ),
    seen(Sign.CDI_CONFLICT, r"conflicting device", r"cdi.{0,40}conflict", r"duplicate cdi"),
    seen(
        Sign.STALE_MOUNT,
        r"(?:fulfil mount request|mounting|mount|lstat|stat|open|bind)[^/\n]{0,40}/\S*(?:libnvidia|libcuda|egl_nvidia|glx_nvidia"
        r"|nvidia_drv|nvidia-smi|nvidia-persistenced|gsp_)\S*(?:\.so\.(?P<version>\d{3}[\d.]*))?\S*.{0,80}no such file",
    ),
    seen(
        Sign.CDI_INJECT,
        r"cdi host device",
        r"cdi device injection failed|could not select device driver .{0,3}cdi",
        r"failed to inject (?:cdi )?devices?",
        r"injecting cdi",
        r"cdi (?:is )?(?:not enabled|disabled|not supported)",
        r"enable_cdi\s*=\s*false",
        r"invalid cdi (?:device|spec|version)",
        r"failed to (?:load|parse|read).{0,20}cdi",
        r"cdi registry",
    ),
    seen(
        Sign.CDI_NO_NODES,
        r"no /dev/nvidia\S*",
        r"devicenodes?\W{1,4}(?:\[\]|empty|none|null)",
        r"without (?:any )?/dev/nvidia",
        r"missing /dev/nvidia",
        kinds=frozenset({Kind.CDI, Kind.CLAIM, Kind.DRA_LOG}),
    ),
    seen(
        Sign.CDI_SPEC_PRESENT,
        r"spec (?:file )?(?:is )?present",
        r"(?:/etc/cdi|/var/run/cdi|/run/cdi)/\S+\.(?:ya?ml|json)\b(?!.{0,20}(?:missing|no such))",
        r"spec file .{0,20}exists",
    ),
    seen(Sign.CDI_EMPTY_LIST, r"found 0 cdi devices", r"no cdi (?:devices|specs?)", r"cdi (?:dir\w* )?(?:is )?empty"),
)

RUNTIME: Final[tuple[Message, ...]] = (
    seen(
        Sign.NO_HANDLER,
        r"no runtime for \W{0,3}(?P<name>[\w.-]+)\W{0,3} is configured",
        r"failed to find runtime handler (?P<handler>[\w.-]+)",
        r"runtime handler \W{0,3}\w+\W{0,3} (?:is )?not (?:found|supported|configured)",
    ),
    seen(
        Sign.RUNTIMECLASS_MISSING,
        r"runtimeclass(?:\.node\.k8s\.io)?\W{1,4}(?P<name>[\w.-]+)\W{0,4}\s*not found",
        r"no runtimeclass",
        r"runtimeclass .{0,20}(?:does not exist|missing)",
        r"runtimeclassname.{0,20}(?:absent|missing|not set|unset)",
    ),
    seen(
        Sign.RUNTIME_BINARY,
        rf"(?:exec|stat|binary|fork/exec)\S*:? .{{0,60}}nvidia-container-runtime\W.{{0,40}}(?:executable file not found|{_GONE})",
        rf"binaryname.{{0,80}}(?:wrong|stale|missing|package (?:binary )?is|but |{_GONE})",
        rf"nvidia-container-runtime\S*.{{0,20}}(?:not in \$?path|{_GONE}|missing)",
    ),
    seen(Sign.RUNTIME_UNKNOWN, r"unknown (?:or invalid )?runtime(?: specified| name)?\W{0,4}\s*nvidia"),
    seen(
        Sign.NVML_NOT_IN_POD,
        r"could not load nvml library",
        r"libnvidia-ml\.so\S*:? cannot open shared object",
        r"error_library_not_found",
        r"nvml shared library not found",
        r"detected non-nvml platform",
        r"incompatible (?:platform|strategy) detected",
        r"did you configure the nvidia container toolkit",
        r"failed to (?:start|initialize|init) nvml(?! with)(?!: (?:unknown|driver|insuff))",
        r"nvml (?:library )?(?:is )?not (?:found|available|visible)",
        kinds=POD_KINDS,
    ),
    seen(Sign.GFD_NO_SOURCE, r"no labels generated from any source"),
    seen(
        Sign.PLUGIN_IDLE,
        r"no devices found\.? waiting indefinitely",
        r"no devices found\b",
        r"no nvidia devices found",
        r"found 0 (?:gpu|nvidia )?devices",
        r"no resources? (?:were )?(?:found|advertised)",
        kinds=PLUGIN_KINDS,
    ),
    seen(Sign.CGROUPS_PATH, r"expected cgroupspath to be of format"),
    seen(
        Sign.RUNTIME_CONFIG_BAD,
        r"unsupported (?:config )?version",
        r"failed to (?:load|parse).{0,20}(?:toml|config\.toml)",
        r"toml:? .{0,30}(?:error|invalid)",
        r"unable to configure the docker daemon",
        r"invalid (?:plugin )?config",
        kinds=_RUNTIME_KINDS,
    ),
    seen(
        Sign.DEFAULT_NOT_NVIDIA,
        r"default.?runtime\w*\W{1,6}(?:runc|crun|absent|missing|not set|none|unset)",
        r"(?:nvidia )?(?:is )?not (?:the |set as )*default(?: runtime)?",
        r"default_runtime_name (?:is )?(?:absent|missing|not set|runc)",
        r"(?:without|no) default.?runtime",
        kinds=_RUNTIME_KINDS | {Kind.PODS},
    ),
    seen(
        Sign.NVIDIA_RUNTIME_ABSENT,
        r"runtimes?\W{1,4}(?:io\.containerd\.runc\.v2 )?(?:runc|crun)(?:,? io\.containerd\S+)*\s*$",
        r"(?:no|without)(?: an?)? .?nvidia.? (?:runtime|handler|entry|section)",
        r"runtimes\.\W?nvidia\W{0,2} (?:absent|missing|not (?:present|found))",
        r"nvidia (?:runtime|handler) (?:is )?(?:absent|missing|not (?:configured|present|registered|found|listed))",
        r"grep nvidia.{0,40}(?:empty|nothing|no (?:match|output))",
        kinds=_RUNTIME_KINDS,
    ),
    seen(
        Sign.NVIDIA_RUNTIME_PRESENT,
        r"runtimes\.\W?nvidia\W{0,2} (?:is )?present",
        r"runtimes\.\"?nvidia\"?(?:\.options)?\]",
        r"runtimes:.{0,40}\bnvidia\b",
        kinds=_RUNTIME_KINDS,
    ),
    seen(
        Sign.OTHER_CONFIG_FILE,
        r"/var/lib/rancher/\S+/containerd",
        r"/var/snap/microk8s",
        r"/etc/k0s",
        r"/var/lib/k0s",
        r"config\.toml\.tmpl",
        r"microk8s",
        r"\bk3s\b",
        r"\brke2\b",
        r"\bk0s\b",
    ),
    seen(Sign.CTR_OK, r"\bctr\b.{0,60}(?:--gpus|run).{0,60}(?:\bok\b|works|success|fine|shows|lists)"),
    seen(
        Sign.SMI_NOT_FOUND,
        r"nvidia-smi\W{0,3}:? (?:command )?(?:not found|executable file not found)",
        r"exec: \W{0,3}nvidia-smi\W{0,3}:.{0,30}not found",
        r"nvidia-smi.{0,20}(?:no such file|is missing|absent)",
    ),
    seen(
        Sign.LIBCUDA_MISSING,
        r"libcuda\.so\S*:? cannot open shared object",
        r"could not (?:load|find|locate|open).{0,40}libcuda\b",
        r"libcuda\.so\S* (?:is )?(?:not found|missing)",
        r"unable to (?:find|load) libcuda",
    ),
    seen(
        Sign.VISIBLE_VOID,
        r"nvidia_visible_devices\W{1,3}(?:void|none|\s*$)",
        r"(?:no|without) (?:gpu|nvidia\.com/gpu) (?:limit|request)",
        r"does not request (?:a |any )?gpu",
        r"resources\.limits (?:is |are )?(?:absent|missing|empty)",
    ),
)

CGROUP: Final[tuple[Message, ...]] = (
    seen(
        Sign.NVML_UNKNOWN,
        r"initiali[sz]e nvml: unknown error",
        r"nvml_error_unknown",
        r"nvml: unknown error",
        r"nvmlinit\S*.{0,30}unknown error",
    ),
    seen(
        Sign.DEV_NOT_PERMITTED,
        r"/dev/nvidia\S*.{0,40}(?:operation not permitted|eperm)",
        r"(?:operation not permitted|eperm).{0,40}/dev/nvidia",
    ),
    seen(
        Sign.RULES_GONE,
        r"(?:device )?(?:rules?|entries|195:\S*).{0,40}(?:gone|lost|dropped|removed|missing|disappeared|no longer)",
        r"no (?:rw )?rules? (?:for|on) 195",
        r"devices\.list.{0,40}(?:lacks|without|no) .{0,10}195",
        kinds=frozenset({Kind.CGROUP, Kind.NOTE, Kind.CONTAINER_LOG}),
    ),
)

SANDBOX: Final[tuple[Message, ...]] = (
    seen(
        Sign.NVPROXY_DRIVER,
        r"unsupported nvidia driver version:? ?(?P<version>[\d.]*\d)?",
        r"nvproxy.{0,60}(?:unsupported|unknown|unqualified) (?:nvidia )?driver",
    ),
    seen(
        Sign.NVPROXY_CALL,
        r"nvproxy:? .{0,60}(?:unknown|unsupported|not supported|unimplemented|failed|not allowed)",
        r"(?:unsupported|unknown) (?:control command|ioctl|frontend ioctl|uvm ioctl|allocation class)",
    ),
    seen(
        Sign.SANDBOX_EOF,
        r"waiting for sandbox to start: eof",
        r"cannot read client sync file",
        r"cannot create sandbox",
        r"sandbox (?:exited|crashed|terminated) unexpectedly",
    ),
    seen(
        Sign.VFIO_GROUP,
        r"group \d+ is not viable",
        r"all devices within the iommu_group",
        r"iommu group.{0,40}(?:not|other devices|shared)",
    ),
    seen(
        Sign.VFIO_OPEN,
        r"(?:cold|hot)[_ ]?plug\S*.{0,60}(?:fail|error|invalid|requires)|unknown device type vfio|pgpu=\S*vfio",
        r"/dev/vfio/\S*.{0,60}(?:no such file|permission denied|busy|could not|not found)",
        r"vfio\S*.{0,80}(?:\berror\b|fail(?:ed|ure)?\b|cannot|not permitted)",
        r"failed to (?:bind|attach|open).{0,40}vfio",
        r"device .{0,20}is (?:already )?in use by .{0,20}vfio",
    ),
    seen(
        Sign.HYPERVISOR,
        r"qmp command failed",
        r"\bqemu\S*:? .{0,60}(?:fail|error|exited|terminated)",
        r"launch(?:ing)? (?:qemu|hypervisor)",
        r"kata\S*.{0,60}(?:fail|error|timed? ?out|timeout)",
        r"failed to check if grpc server is working",
        r"hypervisor.{0,40}(?:fail|error)",
        r"cloud-hypervisor.{0,40}(?:fail|error)",
        r"failed to (?:create|start) (?:the )?(?:sandbox|micro)?vm\b",
        r"(?:firecracker|microvm).{0,60}(?:fail|error|not support|no (?:gpu|vfio))",
    ),
    seen(Sign.VFIO_BOUND, r"driver in use:\s*vfio-pci", r"bound to vfio-pci", r"vfio-pci.{0,20}(?:owns|took|bound)"),
    seen(Sign.IOMMU_OFF, r"iommu (?:is )?(?:not enabled|disabled|not found|off\b|not supported)", r"no iommu\b"),
    seen(
        Sign.RUNSC,
        r"\brunsc\b",
        r"\bgvisor\b",
        r"\bnvproxy\b",
        kinds=OPERAND_KINDS | {Kind.SANDBOX, Kind.HOST, Kind.NODE, Kind.RUNTIME_CONFIG, Kind.RAY},
    ),
)
