"""All rules, lowest layer first. Names are unique; `beats` names rules of this table."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.rules import batch, driver, fabric, hardware, kubelet, mig, operator, plugin, runtime, sandbox, toolkit, workload
from shoal.diagnosis.rules.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *hardware.HARDWARE,
    *driver.DRIVER,
    *fabric.FABRIC,
    *fabric.GPU_STATE,
    *toolkit.TOOLKIT,
    *toolkit.CDI,
    *runtime.RUNTIME,
    *runtime.CGROUP,
    *operator.LABELS,
    *operator.UPGRADE,
    *mig.MIG,
    *mig.MPS,
    *plugin.PLUGIN,
    *plugin.DRA,
    *plugin.HEALTH,
    *kubelet.KUBELET,
    *kubelet.SCHEDULER,
    *batch.SLURM,
    *sandbox.SANDBOX,
    *workload.COMPAT,
    *workload.IMAGE,
    *workload.APPLICATION,
    *batch.MONITORING,
    *workload.NO_FAULT,
)
