"""
How many cases of a file the doctor gets right: `python tools/doctor_cases.py FILE.jsonl`, of the form of `--evidence` with answers.

Prints each case that is wrong, right of all by layer, and the count of confident wrong verdicts (another layer with a confidence over
0.5). Ends with 1 where there is one of those. The last line is JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from shoal.diagnosis.evidence import evidence_of
from shoal.diagnosis.finding import CONFIDENT
from shoal.diagnosis.judge import diagnose


def main(path: str) -> int:
    cases = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter(case["layer"] for case in cases)
    confident_wrong = 0
    for case in cases:
        verdict = diagnose(evidence_of(case["evidence"], case["id"]))
        if verdict.root.layer == case["layer"]:
            right[case["layer"]] += 1
            continue
        confident_wrong += verdict.root.confidence > CONFIDENT
        probe = verdict.next_probe.name if verdict.next_probe else "-"
        print(f"{case['id']}: is {case['layer']}, said {verdict.root.layer} ({verdict.root.confidence}, {verdict.root.rule}), next {probe}")
    for layer in sorted(asked):
        print(f"{layer:20} {right[layer]} of {asked[layer]}")
    print(json.dumps({"right": right.total(), "of": len(cases), "confident_wrong": confident_wrong}))
    return 1 if confident_wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/doctor_cases.py FILE.jsonl")
    sys.exit(main(sys.argv[1]))
