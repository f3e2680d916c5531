"""What programs print: CUDA against driver, what an image was built for, mistakes of the program itself."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.evidence import Kind
from shoal.diagnosis.parsers.message import APP_KINDS, Message, seen
from shoal.diagnosis.signs import Sign

_APP = APP_KINDS | {Kind.IMAGE, Kind.HOST, Kind.NODE, Kind.SMI_CONTAINER}

COMPAT: Final[tuple[Message, ...]] = (
    seen(
        Sign.REQUIRE_UNMET, r"unsatisfied condition:? (?P<name>\w+) ?(?P<relation>>=|<=|==?|<|>) ?(?P<version>[\w.]+)", r"requirement error"
    ),
    seen(
        Sign.DRIVER_INSUFFICIENT,
        r"driver version is insufficient for cuda runtime",
        r"cudaerrorinsufficientdriver",
        r"nvidia driver (?:on your system )?is too old",
        r"driver (?:is )?too old",
        r"requires? (?:a newer|driver version) .{0,30}driver",
        r"\berror:? 35\b",
        r"newer than (?:the )?(?:installed )?driver",
    ),
    seen(Sign.CUDA_804, r"forward compatibility was attempted on non supported", r"\berror:? 804\b", r"compat_?not_?supported_?on_?device"),
    seen(
        Sign.CUDA_803,
        r"unsupported display driver / cuda driver combination",
        r"\berror:? 803\b",
        r"system_driver_mismatch",
        r"cudaerrorsystemdrivermismatch",
    ),
    seen(
        Sign.PTX_TOO_NEW,
        r"unsupported (?:ptx version|toolchain)",
        r"ptx was compiled with an unsupported toolchain",
        r"unsupported_ptx_version",
        r"ptx (?:jit|version).{0,40}(?:unsupported|newer|fail)",
    ),
)

IMAGE: Final[tuple[Message, ...]] = (
    seen(
        Sign.NO_KERNEL_IMAGE,
        r"no kernel image is available",
        r"cudaerrornokernelimagefordevice",
        r"no_binary_for_gpu",
        r"no binary for gpu",
        r"is not compatible with the current pytorch",
        r"device kernel image is invalid",
        r"invalid device function",
        r"unsupported gpu architecture",
        r"(?:not compiled|no code|not built|no kernels?) for (?:sm_|compute capability|this gpu|gpu arch)",
        r"(?:cuda error|error):? 209\b",
    ),
    seen(
        Sign.CPU_ONLY_BUILD,
        r"torch not compiled with cuda",
        r"not compiled with (?:cuda|gpu)",
        r"\d\+cpu\b",
        r"compiled without (?:cuda|gpu)",
        r"\bcpu.only (?:build|wheel|version|torch|package|install)",
        r"without cuda support",
        r"not built with cuda",
        r"an nvidia gpu may be present.{0,60}but a cuda-enabled jaxlib is not",
        r"cuda-enabled jaxlib is not installed",
        kinds=_APP,
    ),
    seen(
        Sign.CUDA_LIBRARY_MISSING,
        r"lib(?:cudart|cublas\w*|cudnn\w*|cufft|curand|cusparse\w*|cusolver|nccl|nvrtc\S*|nvjitlink|cupti|nvinfer\w*|cufile"
        r"|nvtoolsext)\S*:? ?(?:cannot open shared object|no such file|not found)",
        r"could not load (?:dynamic )?library .{0,3}lib(?:cudart|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvrtc|nvinfer)",
        r"undefined symbol: \w*(?:cu[a-z]|nv[a-z]|nccl|cuda)",
        r"unable to load any of .{0,3}libcudnn",
        r"cannot (?:load|dlopen|find).{0,30}(?:libcudnn|cudnn|libcudart|tensorrt|gpu libraries)",
        r"cudnn version (?:incompatibility|mismatch)",
        kinds=_APP,
    ),
    seen(Sign.WRONG_CPU_ARCH, r"exec format error", r"no match for platform in manifest", r"no matching manifest for linux"),
    seen(
        Sign.ARCH_FEATURE,
        r"no longer supports this gpu",
        r"only supports? (?:ampere|hopper|blackwell|volta|turing)\w* (?:gpus )?or newer",
        r"is only supported on (?:gpus|devices) with compute capability",
        r"requires? (?:a gpu with )?(?:compute capability|device capability|sm_?\d\d)\b",
        r"compute capability \d+\.\d+.{0,40}(?:not supported|too low|required|deprecated)",
        r"gpu is (?:too old|not supported) .{0,30}pytorch",
        kinds=_APP,
    ),
    seen(Sign.IMPORT_FAILED, r"modulenotfounderror", r"importerror: (?!.{0,80}lib(?:cuda|nvidia-ml)\b)", kinds=_APP),
    seen(Sign.BUILT_FOR, r"supports? cuda capabilities (?P<archs>(?:sm_\d+a? ?)+)", kinds=_APP),
    seen(Sign.GPU_ARCH, r"cuda capability sm_(?P<arch>\d+)", kinds=_APP),
)

APPLICATION: Final[tuple[Message, ...]] = (
    seen(
        Sign.CUDA_OOM,
        r"cuda out of memory",
        r"outofmemoryerror",
        r"cuda_error_out_of_memory",
        r"cudaerrormemoryallocation",
        r"cublas_status_alloc_failed",
        r"failed to allocate.{0,40}(?:gpu|cuda|device|vram)",
        r"no available memory for the cache blocks",
        r"free memory on device.{0,60}less than",
        kinds=APP_KINDS,
    ),
    seen(
        Sign.CUDA_ILLEGAL,
        r"illegal memory access",
        r"device-side assert",
        r"misaligned address",
        r"an illegal instruction was encountered",
        r"unspecified launch failure",
        r"cudaerrorillegaladdress",
        r"cudaerrorlaunchfailure",
        r"cudaerrorassert",
        r"launch timed out and was terminated",
        kinds=APP_KINDS,
    ),
    seen(
        Sign.BAD_ORDINAL,
        r"invalid device ordinal",
        r"cuda_visible_devices.{0,40}(?:empty|invalid|wrong|out of range|''|\"\"|=-1)",
        r"cuda_error_invalid_device",
        kinds=APP_KINDS,
    ),
    seen(
        Sign.SHARED_MEMORY,
        r"insufficient shared memory",
        r"no space left on device.{0,40}(?:/dev/shm|nccl)",
        r"/dev/shm.{0,40}(?:no space|too small|full|64m)",  # noqa: S108  words of a log, no file
        r"bus error.{0,60}(?:shm|shared memory)",
        kinds=APP_KINDS,
    ),
    seen(
        Sign.NCCL,
        r"nccl (?:warn|error)\b",
        r"ncclsystemerror",
        r"ncclinternalerror",
        r"ncclunhandledcudaerror",
        r"ncclremoteerror",
        r"unhandled (?:system|cuda) error",
        r"collective operation timeout",
        r"watchdog caught collective",
        r"no socket interface found",
        r"connect to .{0,40}failed : (?:connection refused|no route|software caused)",
        kinds=APP_KINDS,
    ),
    seen(
        Sign.NO_CUDA_DEVICE,
        r"no cuda-capable device",
        r"cudaerrornodevice",
        r"cuda_error_no_device",
        r"no cuda gpus are available",
        r"no gpus? (?:is |are )?(?:available|found|detected|visible)",
        r"found no nvidia driver",
        r"cuda(?:\.is_available\(\))? (?:available)?\W{1,4}(?:returns )?false\b",
        r"is_available\(\)\W+(?:returns )?false",
        r"cannot (?:find|see|use|access) (?:any |the )?gpus?\b",
        r"sees? (?:0|no) gpus?",
        r"device_count\(\)\W+0\b",
        r"no nvidia gpus? (?:found|detected)",
        r"failed call to cuinit",
        kinds=APP_KINDS | {Kind.SMI_CONTAINER, Kind.SANDBOX},
    ),
    seen(Sign.OOM_KILLED, r"oomkilled", r"memory cgroup out of memory", r"exit(?:ed)?(?: code| with)?:? 137\b", kinds=APP_KINDS),
    seen(
        Sign.RAY_FEWER,
        r"(?:ray|num_gpus|'gpu'|\"gpu\").{0,60}(?:fewer|\b0(?:\.0)?\b|less than|none)",
        r"no available node types can fulfill",
        r"infeasible.{0,40}(?:gpu|resource)",
        r"cannot be scheduled right now.{0,60}gpu",
        kinds=frozenset({Kind.RAY, Kind.APP_LOG, Kind.NOTE}),
    ),
)
