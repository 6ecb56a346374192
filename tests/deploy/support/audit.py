"""Whether a package of requirements.lock has a known vulnerability, and the record of when this was last looked up.

``python tests/deploy/support/audit.py PIP_AUDIT`` asks pip-audit (.github/sbom-requirements.lock has its release) and
writes the record. Exit codes: 0 no known vulnerability; 1 there are some; 2 its source does not know every package.
Without PIP_AUDIT, as `make check` calls it: 0 if the record is of this lock, else 1.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements.lock"
RECORD = ROOT / ".github/audit.json"


def fault(record: dict[str, Any], lock: bytes) -> str:
    """The fault of a record of the last audit; "" if it is of this lock."""
    if record["sha256"] == hashlib.sha256(lock).hexdigest():
        return ""
    return (
        f"requirements.lock was changed after its audit of {record['date']}: install pip-audit in an environment of "
        "its own (pip install --require-hashes -r .github/sbom-requirements.lock), and run: "
        "python tests/deploy/support/audit.py PATH_OF_PIP_AUDIT"
    )


def record_of(said: dict[str, Any], tool: str, lock: bytes, today: str) -> dict[str, Any]:
    """The record of an audit. A package that the source does not know was not looked up."""
    packages = said["dependencies"]
    return {
        "date": today,
        "tool": tool,
        "sha256": hashlib.sha256(lock).hexdigest(),
        "looked_up": sorted(f"{it['name']} {it['version']}" for it in packages if "skip_reason" not in it),
        "not_looked_up": sorted(it["name"] for it in packages if "skip_reason" in it),
        "vulnerabilities": sorted(f"{it['name']} {fault['id']}" for it in packages for fault in it.get("vulns", ())),
    }


def exit_code(record: dict[str, Any]) -> int:
    if record["vulnerabilities"]:
        return 1
    return 2 if record["not_looked_up"] or not record["looked_up"] else 0


def main(arguments: list[str]) -> int:
    if not arguments:
        wrong = fault(json.loads(RECORD.read_text(encoding="utf-8")), LOCK.read_bytes())
        print(wrong, file=sys.stderr, end="\n" if wrong else "")  # noqa: T201
        return 1 if wrong else 0
    (program,) = arguments
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    command = [program, "--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
    said = subprocess.run([*command, "-r", str(LOCK)], stdout=subprocess.PIPE, text=True, check=False).stdout
    record = record_of(json.loads(said), version, LOCK.read_bytes(), f"{datetime.now(UTC):%Y-%m-%d}")
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(*record["vulnerabilities"], *(f"{name}: not looked up" for name in record["not_looked_up"]), sep="\n")  # noqa: T201
    return exit_code(record)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
