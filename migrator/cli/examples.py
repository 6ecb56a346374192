"""The most common uses of each command, for the end of its ``--help``."""

from __future__ import annotations

import click

C = "-c controller.properties"
INVENTORY = "-i inventory.yaml"
EXAMPLES: dict[str, tuple[str, ...]] = {
    "preflight": (
        f"migrator preflight {C} --zookeeper zk1:2181/kafka --brokers server.properties",
        f"migrator preflight {C} --zookeeper zk1:2181/kafka --json",
    ),
    "repair": (f"migrator repair partition-states {C} --dry-run",),
    "repair partition-states": (
        f"migrator repair partition-states {C} --dry-run",
        f"migrator repair partition-states {C}",
    ),
    "controller": (f"migrator controller {C}", f"migrator controller {C} --bootstrap"),
    "status": (
        f"migrator status {C}",
        f"migrator status {C} --watch",
        f"migrator status {C} --json",
        "migrator status --server host1:9095 --command-config operator.properties",
    ),
    "top": (f"migrator top {C}", f"migrator top {C} --once --picture top.svg"),
    "pause": (f"migrator pause {C} --reason 'broker 3 is not ready'",),
    "resume": (f"migrator resume {C}",),
    "force": (
        f"migrator force reclaim {C} --reason 'the quorum lost its disks, CHG-42'",
        f"migrator force reconcile {C} --reason 'somebody wrote to ZooKeeper by hand'",
        f"migrator force finish {C} --without 3002 --reason 'the machine of controller 3002 is lost, CHG-43'",
    ),
    "gates": (f"migrator gates finish {C}", f"migrator gates rollback {C}", f"migrator gates reopen {C}"),
    "close-way-back": (f"migrator close-way-back {C} --reason 'client metrics are wanted, CHG-45'",),
    "reopen": (f"migrator reopen {C} --reason 'the auditors want ZooKeeper back, CHG-44'",),
    "rollback": (
        f"migrator rollback {C}",
        f"migrator rollback {C} --log /backup/metadata-of-controller-2",
        f"migrator rollback {C} --without-log",
    ),
    "rehearse": (
        f"migrator rehearse --zookeeper zk1:2181/kafka {C}",
        "migrator rehearse --zookeeper zk1:2181/kafka --out rehearsal --broker-seconds 90",
    ),
    "verify": (
        "migrator verify --zookeeper zk1:2181/kafka --metadata /var/lib/kafka/metadata",
        f"migrator verify --zookeeper zk1:2181/kafka {C} --page proof.html",
    ),
    "rollout": (f"migrator rollout plan {INVENTORY}", f"migrator rollout apply {INVENTORY} --until DualWrite"),
    "rollout plan": (f"migrator rollout plan {INVENTORY}", f"migrator rollout plan {INVENTORY} --back"),
    "rollout apply": (
        f"migrator rollout apply {INVENTORY} --until DualWrite",
        f"migrator rollout apply {INVENTORY} --canary broker-3",
        f"migrator rollout apply {INVENTORY} --pause-after kraft/broker-1",
    ),
    "rollout resume": (
        f"migrator rollout resume {INVENTORY}",
        f"migrator rollout resume {INVENTORY} --until Finished --yes",
    ),
    "rollout rollback": (f"migrator rollout rollback {INVENTORY}",),
    "rollout status": (f"migrator rollout status {INVENTORY}", f"migrator rollout status {INVENTORY} --json"),
    "rollout history": (f"migrator rollout history {INVENTORY}",),
    "rollout report": (
        f"migrator rollout report {INVENTORY}",
        f"migrator rollout report {INVENTORY} --before --page plan.html",
    ),
    "rollout abort": (f"migrator rollout abort {INVENTORY}",),
    "rollout unlock": (f"migrator rollout unlock {INVENTORY}",),
    "rollout remove-znodes": (f"migrator rollout remove-znodes {INVENTORY}",),
    "rollout schema": ("migrator rollout schema > inventory.schema.json",),
    "handover": (f"migrator handover check {C}", f"migrator handover run {C}"),
    "handover check": (
        f"migrator handover check {C}",
        f"migrator handover check --way members --voters 4,5,6 {C}",
    ),
    "handover run": (
        f"migrator handover run {C}",
        f"migrator handover run --way members --voters 4,5,6 {C}",
    ),
    "quorum": (f"migrator quorum describe {C}", f"migrator quorum reassign {C} --to 4,5,6 --wait"),
    "quorum describe": (f"migrator quorum describe {C}", f"migrator quorum describe {C} --watch"),
    "quorum reassign": (f"migrator quorum reassign {C} --to 4,5,6 --wait",),
    "quorum add": (f"migrator quorum add 4 {C}",),
    "quorum remove": (f"migrator quorum remove 2 {C}",),
    "quorum cancel": (f"migrator quorum cancel {C}",),
    "quorum upgrade": (f"migrator quorum upgrade {C}",),
    "quorum rollout-lock": (f"migrator quorum rollout-lock {C}",),
    "quorum unregister": (f"migrator quorum unregister {C} --id 4",),
    "quorum recover": (
        f"migrator quorum recover {C}",
        f"migrator quorum recover {C} --lost 2@DIRECTORY-ID --lost 3@DIRECTORY-ID --force",
    ),
    "log": ("migrator log dump /var/lib/kafka/metadata/__cluster_metadata-0/00000000000000000000.log",),
    "log dump": (
        "migrator log dump /var/lib/kafka/metadata/__cluster_metadata-0/00000000000000000000.log",
        "migrator log dump --json 00000000000000000042-0000000003.checkpoint",
    ),
    "drill": ("migrator drill", "migrator drill --kafka none --rollback-at dualwrite"),
    "man": ("migrator man > ~/.local/share/man/man1/migrator.1", "migrator man | man -l -"),
    "completion": (
        "migrator completion bash > ~/.local/share/bash-completion/completions/migrator",
        "migrator completion zsh > ~/.zfunc/_migrator",
        "migrator completion fish > ~/.config/fish/completions/migrator.fish",
    ),
}
"""Examples by the words of the command. Commands with their own epilog are not here."""


def add_examples(name: str, command: click.Command) -> None:
    """Add examples to the help of a command and of its subcommands."""
    lines = EXAMPLES.get(name)
    if lines and not command.epilog:
        command.epilog = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
    if isinstance(command, click.Group):
        for part, found in command.commands.items():
            add_examples(f"{name} {part}", found)
