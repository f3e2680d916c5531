"""Rules for node labels and the operator's driver upgrade."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.layers import Layer
from shoal.diagnosis.rules.rule import Rule, Severity, Tier, on
from shoal.diagnosis.signs import Sign

_NODE = "kubectl get node NODE -o yaml"
_PODS = "kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName=NODE"

LABELS: Final[tuple[Rule, ...]] = (
    Rule(
        "nfd-missing",
        Layer.NODE_LABELS,
        Tier.ROOT,
        0.9,
        ((Sign.NO_GPU_NODES, Sign.NO_KERNEL_LABEL),),
        "Node feature discovery gave no labels, so the operator knows neither GPUs nor kernels.",
        "Deploy node feature discovery (or enable the bundled one); read its worker's log.",
        "node-labels",
        ("kubectl get pods -A | grep node-feature", _NODE),
        beats=("driver-container",),
    ),
    Rule(
        "other-pci-label",
        Layer.NODE_LABELS,
        Tier.ROOT,
        0.9,
        ((Sign.OTHER_PCI_LABEL,), (Sign.NO_OPERAND_PODS, Sign.PCI_LABEL_MISSING, Sign.GPU_LABEL_MISSING)),
        "NFD wrote the PCI label in another form than this operator accepts.",
        "Set deviceLabelFields to vendor, or update the operator.",
        "node-labels",
        (_NODE,),
    ),
    Rule(
        "pci-label",
        Layer.NODE_LABELS,
        Tier.ROOT,
        0.82,
        ((Sign.PCI_LABEL_MISSING, Sign.GPU_LABEL_MISSING),),
        "The node lacks the label that says it has a GPU; no operand is placed there.",
        "Look at NFD's worker on the node and at its deviceClassWhitelist.",
        "node-labels",
        (_NODE,),
        unless=(Sign.NO_GPU_ON_BUS,),
    ),
    Rule(
        "operands-off",
        Layer.NODE_LABELS,
        Tier.ROOT,
        0.85,
        ((Sign.OPERANDS_OFF,),),
        "A label switches the operator's pods off on this node.",
        "Remove nvidia.com/gpu.deploy.*=false if that is not meant.",
        "node-labels",
        (_NODE,),
    ),
    Rule(
        "nfd",
        Layer.NODE_LABELS,
        Tier.LEAD,
        0.6,
        (
            (
                Sign.NFD_MISSING,
                on(Sign.POD, operand="nfd", state="crash"),
                on(Sign.POD, operand="nfd", state="pending"),
                on(Sign.POD, operand="nfd", state="image"),
            ),
        ),
        "Node feature discovery does not run, so labels are missing or old.",
        "Mend NFD; read its worker's log.",
        "node-labels",
        ("kubectl get pods -A | grep node-feature",),
    ),
    Rule(
        "no-operand-pods",
        Layer.NODE_LABELS,
        Tier.LEAD,
        0.5,
        ((Sign.NO_OPERAND_PODS,),),
        "The operator placed no pods on the node: its labels do not select it.",
        "Look at the node's PCI and deploy labels, and at its taints.",
        "node-labels",
        (_NODE,),
    ),
)

UPGRADE: Final[tuple[Rule, ...]] = (
    Rule(
        "upgrade-driver-busy",
        Layer.DRIVER_UPGRADE,
        Tier.ROOT,
        0.88,
        (
            (Sign.UPGRADE_UNFINISHED, Sign.UPGRADE_FAILED, Sign.PAUSED_FOR_UPGRADE),
            (
                Sign.DRIVER_BUSY,
                on(Sign.INIT, name="k8s-driver-manager"),
                on(Sign.POD, operand="driver", state="crash"),
                Sign.DRIVER_CONTAINER_NOT_READY,
            ),
        ),
        "The driver upgrade does not finish: the node is in it and the old driver cannot be unloaded.",
        "Run the upgrade to its end (pod deletion or drain on, maxUnavailable not used up), or cordon, drain and reboot node by node.",
        "holders",
        (_NODE, "kubectl logs -n gpu-operator DRIVER-POD -c k8s-driver-manager"),
        beats=("driver-busy", "driver-container"),
    ),
    Rule(
        "manager-driver-busy",
        Layer.DRIVER_UPGRADE,
        Tier.ROOT,
        0.66,
        ((on(Sign.INIT, name="k8s-driver-manager"),), (Sign.DRIVER_BUSY, Sign.EVICTION_BLOCKED)),
        "The new driver pod waits in k8s-driver-manager because the old driver is still in use and its users are not evicted.",
        "Allow pod deletion or drain in the upgrade policy; else drain the node, or reboot it.",
        "holders",
        (_NODE, "kubectl logs -n gpu-operator DRIVER-POD -c k8s-driver-manager"),
        beats=("driver-busy", "driver-container"),
    ),
    Rule(
        "upgrade",
        Layer.DRIVER_UPGRADE,
        Tier.ROOT,
        0.8,
        ((Sign.UPGRADE_UNFINISHED, Sign.UPGRADE_FAILED, Sign.PAUSED_FOR_UPGRADE),),
        "The node is in the middle of a driver upgrade ({state}).",
        "See which state it hangs in; other nodes may have used up maxUnavailable.",
        "operand-pods",
        (_NODE, _PODS),
        unless=(Sign.UNSIGNED, Sign.HEADERS_MISSING, Sign.BUILD_FAILED),
        severity=Severity.DEGRADED,
        beats=("driver-container",),
    ),
    Rule(
        "eviction-blocked",
        Layer.DRIVER_UPGRADE,
        Tier.LEAD,
        0.66,
        ((Sign.EVICTION_BLOCKED,),),
        "The old driver stays because its users may not be evicted: by the upgrade policy or by a disruption budget.",
        "Allow pod deletion or drain in the upgrade policy, or move the pods by hand.",
        "operand-pods",
        (_NODE, _PODS),
        beats=("driver-container", "driver-busy"),
        severity=Severity.DEGRADED,
    ),
    Rule(
        "driver-manager",
        Layer.DRIVER_UPGRADE,
        Tier.LEAD,
        0.5,
        (
            (
                on(Sign.INIT, name="k8s-driver-manager"),
                on(Sign.POD, operand="driver-manager", state="crash"),
                on(Sign.POD, operand="driver-manager", state="pending"),
            ),
        ),
        "The driver pod waits in k8s-driver-manager, which evicts GPU users and unloads the old driver.",
        "Read that container's log; find who holds the GPUs.",
        "driver-log",
        ("kubectl logs -n gpu-operator DRIVER-POD -c k8s-driver-manager",),
        beats=("driver-container",),
        unless=(Sign.HEADERS_MISSING, Sign.BUILD_FAILED, Sign.UNSIGNED),
    ),
)
