"""The hardening of the samples in deploy/, of the image and of the workflow cannot be lost unnoticed."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.cli.main import EXTRAS
from migrator.config.load import load_settings
from migrator.config.names import map_name, parse_mapping_rules
from migrator.observe.metrics_access import MetricsAccess, access_files
from migrator.wire.listener_settings import named_security
from tests.deploy.support.run_time_lock import CONTROLLER, DRILL, TOOLS, entries, locks, plain
from tests.deploy.test_files import DEPLOY, ROOT, Kubernetes, dockerfile, stages, systemd_unit

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")
SECRET_MODE = 0o400
UNIT = "kraft-migrator.service"
NEED_EXTRAS = {
    "migrator.cli.ask_run",
    "migrator.cli.drill",
    "migrator.cli.verify_run",
} | {
    "migrator.observe.pages.template",
    "migrator.rollout.report.page",
}
"""Modules outside of `verify` and `drill` that cannot be imported where only a controller runs."""
OF_EXTRAS = {"pyspark", "grpcio-status", "pandas", "pyarrow", "jinja2", "confluent-kafka"}
OF_BUILD = {"grpcio-tools", "setuptools"}
EXPOSURE_MAX = 2.0
"""Of `systemd-analyze security`, from 0 (none) to 10."""


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


def names_in(lock: Path) -> set[str]:
    return {plain(entry.partition("==")[0]) for entry in entries(lock)}


def containers(kubernetes: Kubernetes) -> list[dict[str, Any]]:
    return [*kubernetes.pod["initContainers"], *kubernetes.pod["containers"]]


def test_a_pod_has_no_rights_to_lose(kubernetes: Kubernetes) -> None:
    pod = kubernetes.pod
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] != 0
    assert context["fsGroupChangePolicy"] == "OnRootMismatch"
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for container in containers(kubernetes):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_secrets_are_mounted_for_their_reader_only(kubernetes: Kubernetes) -> None:
    volumes = {volume["name"]: volume for volume in kubernetes.pod["volumes"]}
    secrets = {name: volume.get("secret") or volume["projected"] for name, volume in volumes.items()
               if volume.keys() & {"secret", "projected"}}  # fmt: skip
    assert secrets.keys() == {"secrets", "tls", "zookeeper-tls"}
    assert {secret["defaultMode"] for secret in secrets.values()} == {SECRET_MODE}
    for container in containers(kubernetes):
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert secrets.keys() <= mounts.keys()
        writable = {name for name, mount in mounts.items() if not mount.get("readOnly")}
        assert writable == {"properties", "metadata", "temporary"}
        assert mounts["temporary"]["mountPath"] == str(Path("/") / "tmp")
    for name in ("properties", "temporary"):
        assert volumes[name]["emptyDir"].keys() == {"medium", "sizeLimit"}
    assert "umask 077" in kubernetes.pod["initContainers"][0]["args"][0]


def test_nothing_of_a_pod_is_in_the_clear_or_open_to_all(kubernetes: Kubernetes, tmp_path: Path) -> None:
    settings, warnings = load_settings(kubernetes.properties(tmp_path))
    assert warnings == []
    assert set(settings.protocol_map.values()) == {"SSL"}
    assert settings.ssl_client_auth == "required"
    assert settings.authorizer_class_name.endswith(".StandardAuthorizer")
    assert not settings.allow_everyone_if_no_acl_found
    assert settings.zookeeper_ssl_client_enable
    assert settings.zookeeper_set_acl
    assert settings.migrator_grpc_listener == ""
    context = named_security(settings, settings.controller_listeners[0]).server_context
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    access = MetricsAccess(access_files(settings))
    assert access.tls() is not None
    assert not access.admits(None)


def test_each_controller_has_a_certificate_of_its_own_and_only_exact_subjects_are_super_users(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    settings = load_settings(kubernetes.properties(tmp_path))[0]
    name = kubernetes.by_kind["StatefulSet"]["metadata"]["name"]
    pods = [f"{name}-{number}" for number in range(kubernetes.set["replicas"])]
    rules = parse_mapping_rules(settings.ssl_principal_mapping_rules)
    assert {f"User:{map_name(f'CN={owner}', rules)}" for owner in (*pods, "kafka-brokers")} == settings.super_user_names
    for subject in ("CN=kafka-brokers,O=another", "CN=kafka-brokers-1", f"CN={pods[0]},OU=x", f"CN={name}-10",
                    "OU=x,CN=kafka-brokers", f"CN={name}", f"CN=CN={pods[0]}"):  # fmt: skip
        assert f"User:{map_name(subject, rules)}" not in settings.super_user_names, subject
    (volume,) = (each["projected"] for each in kubernetes.pod["volumes"] if each["name"] == "tls")
    shown = {
        source["secret"]["name"]: {item["path"] for item in source["secret"]["items"]} for source in volume["sources"]
    }
    needed = {"tls-combined.pem", "tls.crt", "tls.key", "ca.crt"}
    assert shown == {f"{pod}-tls": {f"{3000 + at}/{file}" for file in needed} for at, pod in enumerate(pods)}
    used = re.findall(r"=/etc/kafka-tls/(\S+)", kubernetes.template)
    assert set(used) == {f"NODE_ID/{file}" for file in needed}


def test_the_network_lets_through_what_the_pods_need(kubernetes: Kubernetes, tmp_path: Path) -> None:
    settings = load_settings(kubernetes.properties(tmp_path))[0]
    policy = kubernetes.by_kind["NetworkPolicy"]["spec"]
    labels = kubernetes.set["selector"]["matchLabels"]
    assert policy["podSelector"]["matchLabels"] == labels == kubernetes.by_kind["Service"]["spec"]["selector"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (container,) = kubernetes.pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    let_in = {port["port"]: rule["from"] for rule in policy["ingress"] for port in rule["ports"]}
    assert let_in.keys() == set(ports.values())
    assert {"podSelector": {"matchLabels": labels}} in let_in[ports["controller"]]
    let_out = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    zookeeper = int((settings.zookeeper_connect or "").partition("/")[0].rpartition(":")[2])
    assert {ports["controller"], zookeeper, 53} < let_out
    assert all(rule["from"] for rule in policy["ingress"])
    assert all(rule["to"] for rule in policy["egress"])


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ProtectSystem", "strict"), ("ProtectHome", "yes"), ("PrivateTmp", "yes"), ("PrivateDevices", "yes"),
        ("NoNewPrivileges", "yes"), ("CapabilityBoundingSet", ""), ("AmbientCapabilities", ""), ("UMask", "0077"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"), ("SystemCallArchitectures", "native"),
        ("SystemCallFilter", "~@privileged @resources"), ("MemoryDenyWriteExecute", "yes"),
        ("ProtectKernelTunables", "yes"), ("ProtectKernelModules", "yes"), ("ProtectKernelLogs", "yes"),
        ("ProtectControlGroups", "yes"), ("ProtectClock", "yes"), ("ProtectHostname", "yes"),
        ("ProtectProc", "invisible"), ("RestrictNamespaces", "yes"), ("RestrictRealtime", "yes"),
        ("RestrictSUIDSGID", "yes"), ("LockPersonality", "yes"), ("RemoveIPC", "yes"), ("KeyringMode", "private"),
    ],
)  # fmt: skip
def test_the_service_runs_in_a_sandbox(key: str, text: str) -> None:
    service = systemd_unit()["Service"]
    assert service[key] == text
    assert service["User"] not in ("", "root")
    assert "SystemCallFilter=@system-service\n" in (DEPLOY / "systemd" / UNIT).read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit_and_finds_it_confined(tmp_path: Path) -> None:
    unit = tmp_path / UNIT
    text = (DEPLOY / "systemd" / UNIT).read_text(encoding="utf-8")
    unit.write_text(text.replace(systemd_unit()["Service"]["ExecStart"].split()[0], sys.executable))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if UNIT in line]) == (0, [])
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(unit)], capture_output=True, text=True, check=False
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert found is not None, judged.stderr
    assert float(found[1]) <= EXPOSURE_MAX, judged.stdout


def test_the_images_are_built_on_a_digest_and_hold_what_runs_only() -> None:
    assert dockerfile()[0] == ["ARG", "PYTHON_IMAGE"], "no default, so that nobody builds on a tag"
    bases = {name: instructions[0][1].split()[0] for name, instructions in stages().items()}
    assert bases == {
        **dict.fromkeys(("build", "base"), "${PYTHON_IMAGE}"),
        **dict.fromkeys(("build-controller", "build-tools"), "build"),
        **dict.fromkeys(("controller", "tools"), "base"),
    }
    assert list(bases)[-1] == "controller", "is built where no target is named"
    assert any("@sha256:[0-9a-f]{64}$" in rest for name, rest in stages()["build"] if name == "RUN")
    runs = [rest for name, rest in dockerfile() if name == "RUN"]
    installs = [part for rest in runs for part in rest.split("&&") if "pip install" in part]
    assert all("--no-cache-dir" in part for part in installs)
    assert all("--require-hashes" in part or "--no-deps" in part for part in installs)


@pytest.mark.parametrize(("image", "lock"), [("controller", CONTROLLER), ("tools", TOOLS)])
def test_an_image_is_its_environment_and_runs_as_nobody(image: str, lock: Path) -> None:
    environment, base, last = (stages()[name] for name in (f"build-{image}", "base", image))
    copied = [rest for name, rest in (*environment, *base, *last) if name == "COPY"]
    assert copied == [
        f"{lock.relative_to(ROOT).as_posix()} /build/run-time.lock",
        f"--from=build-{image} /opt/kraft-migrator/.venv .venv",
    ]
    assert any("pip uninstall --yes pip" in rest for name, rest in environment if name == "RUN")
    installed = [
        rest for name, rest in (*base, *last) if name == "RUN" and "install" in rest.replace("install --dir", "")
    ]
    assert ["openjdk" in rest for rest in installed] == ([True] if image == "tools" else [])
    user = next(rest for name, rest in last if name == "USER")
    assert all(int(part) > 0 for part in user.split(":"))


@pytest.mark.parametrize("lock", locks(), ids=lambda lock: lock.name)
def test_a_lock_is_the_part_of_the_lock_that_runs(lock: Path) -> None:
    assert lock.read_text(encoding="utf-8") == locks()[lock], "run: python -m tests.deploy.support.run_time_lock"
    names = names_in(lock)
    assert {"grpcio", "kazoo"} <= names
    assert (not names & OF_EXTRAS) if lock == CONTROLLER else (names >= OF_EXTRAS)
    assert (names >= OF_BUILD) if lock == DRILL else (not names & OF_BUILD)
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "import-linter"}
    assert all("--hash=sha256:" in entry for entry in entries(lock))


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("lock", [CONTROLLER, TOOLS], ids=lambda lock: lock.name)
def test_the_program_needs_nothing_that_its_image_lacks(lock: Path) -> None:
    """Every module is imported while the packages that the image lacks cannot be."""
    extras = set(EXTRAS) if lock == CONTROLLER else set[str]()
    program = f"""
import importlib, importlib.metadata, pkgutil, re, sys
lacking = {names_in(ROOT / "requirements.lock") - names_in(lock)!r}
blocked = {{module for module, names in importlib.metadata.packages_distributions().items()
           if all(re.sub(r"[-_.]+", "-", name).lower() in lacking for name in names)}}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
import migrator
found = [module.name for module in pkgutil.walk_packages(migrator.__path__, "migrator.")]
for name in found:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        lacked = (error.name or "").partition(".")[0]
        if lacked not in {{"gssapi", *{extras!r}}}:
            raise
        print(name if lacked != "gssapi" else "")
assert blocked and len(found) > 100, (blocked, found)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lacking_theirs = {
        name for name in done.stdout.split() if not name.startswith(("migrator.verify.", "migrator.drill."))
    }
    assert lacking_theirs == (NEED_EXTRAS if lock == CONTROLLER else set()), "a command imports them at its first use"


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_the_workflow_takes_actions_by_commit_and_has_few_rights() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n", text)) == len(used)
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] for job in WORKFLOW["jobs"].values())
    checkouts = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_workflow_says_what_the_images_are_made_of() -> None:
    made = next(step["run"] for step in WORKFLOW["jobs"]["sbom"]["steps"] if "cyclonedx" in step.get("run", ""))
    assert all(f" deploy/docker/{lock.name}" in made.replace("$image.lock", lock.name) for lock in (CONTROLLER, TOOLS))
    lock = ROOT / ".github/sbom-requirements.lock"
    assert f"--require-hashes -r {lock.relative_to(ROOT)}" in made
    assert all("--hash=sha256:" in entry for entry in entries(lock))
    kept = next(step for step in WORKFLOW["jobs"]["sbom"]["steps"] if "upload-artifact@" in step.get("uses", ""))
    assert kept["with"]["if-no-files-found"] == "error"
