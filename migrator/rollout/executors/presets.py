"""Command templates -> argument lists, the presets, and what Kubernetes says of a pod. Pure; no shell sees a template.

A template is split into words as a shell splits it. Then each word is filled in:

* ``{name}``: the value as it is, with all its characters.
* ``{name!q}``: the value quoted for a POSIX shell, for words that another shell splits again (as over ssh).
* ``{*name}``, ``{*name!q}``: must be a whole word, and becomes as many words as the value has.

All other braces stay as they are. The presets are templates by action; the scripts that they run are in `scripts`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Self

from migrator.observe.printable import printable
from migrator.rollout.ports import LOOP
from migrator.values import value

PLACEHOLDER = re.compile(r"\{(\*?)([a-z][a-z0-9_]*)(!q)?\}")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Values = Mapping[str, str | Sequence[str]]


class TemplateError(ValueError):
    """A template or a value cannot be used. The message is a sentence without a full stop."""


def render(template: str, values: Values) -> list[str]:
    """The words of a command.

    :param values: a text that is used with a star is a template, too.
    :raises TemplateError: a placeholder has no value, or the template cannot be split, or it is empty.
    """
    words = [word for raw in _split(template) for word in _filled(raw, values, depth=0)]
    if not words:
        raise TemplateError("the command is empty")
    return words


def check_value(name: str, text: str) -> str:
    """Returns the text.

    :raises TemplateError: it has a line break or another control character, which no real name has.
    """
    if CONTROL.search(text):
        raise TemplateError(f"{name} has a line break or another control character: {printable(repr(text))}")
    return text


def _split(template: str) -> list[str]:
    try:
        return shlex.split(template)
    except ValueError as error:
        raise TemplateError(f"{printable(template)} cannot be taken apart: {error}") from error


def _filled(word: str, values: Values, *, depth: int) -> Iterator[str]:
    whole = PLACEHOLDER.fullmatch(word)
    if whole is None or not whole[1]:
        yield PLACEHOLDER.sub(lambda found: _text(found, values), word)
        return
    found = _value(whole[2], values)
    if not isinstance(found, str):
        several = list(found)
    elif depth:
        raise TemplateError(f"{{*{whole[2]}}} stands inside of another one")
    else:
        several = [text for raw in _split(found) for text in _filled(raw, values, depth=1)]
    yield from map(shlex.quote, several) if whole[3] else several


def _text(found: re.Match[str], values: Values) -> str:
    if found[1]:
        raise TemplateError(f"{found[0]} has to be a word of its own")
    text = _value(found[2], values)
    if not isinstance(text, str):
        raise TemplateError(f"{found[0]} stands for several words: write {{*{found[2]}}}")
    return shlex.quote(text) if found[3] else text


def _value(name: str, values: Values) -> str | Sequence[str]:
    if name not in values:
        raise TemplateError(f"nothing is given for {{{name}}}")
    return values[name]


@value
class Preset:
    """``commands``: templates by action. ``variables``: defaults; a variable without a default must be given. ``here``:
    it touches this machine, so a node on another host is a mistake. ``there``: a command that prints `RUNNING` while
    the place where commands run is there; such a place comes back by itself. ``place``: its name in messages.
    ``trial``: a command that changes nothing, and fails where the preset could not stop or start the node."""

    commands: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    here: bool = False
    there: str = ""
    place: str = ""
    trial: str = ""


PHASES = (RUNNING, *_) = ("Running", "Pending", "Succeeded", "Failed", "Unknown")
"""Phases of a pod."""
_OF_CONTAINERS = "{.status.containerStatuses[*]."
POD_STATUS = (
    f"{{.status.phase}}/{{.status.reason}}/{_OF_CONTAINERS}state.waiting.reason}}/{_OF_CONTAINERS}restartCount}}"
)
"""Kubernetes, PodStatus: its phase and reason; of each container why it waits, and how many times it was restarted."""

UNREACHABLE: Mapping[str, int] = {"ssh": 255, "ansible": 4}
"""The exit code of each program for an unreachable host or a broken connection."""

_OVER_SSH = "{*ssh} -- {host} "
_SSH = (
    "ssh -T -a -k -x -o ClearAllForwardings=yes -o PermitLocalCommand=no -o Tunnel=no -o BatchMode=yes"
    " -o LogLevel=ERROR -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)
"""Whatever ``~/.ssh/config`` says, the host gets no agent, no Kerberos ticket, no display and no tunnel back here. With
them, root of one host could reach all others."""
_FILES = {
    "read": "{*sudo} sh -c {read_script} migrator {path}",
    "write": "{*sudo} sh -c {write_script} migrator {path} {backup}",
}
_FILES_OVER_SSH = {
    "read": _OVER_SSH + "{*sudo!q} sh -c {read_script!q} migrator {path!q}",
    "write": _OVER_SSH + "{*sudo!q} sh -c {write_script!q} migrator {path!q} {backup!q}",
    "copy": _OVER_SSH + "{*run_as!q} sh -c {copy_script!q} migrator {path!q}",
    "run": _OVER_SSH + "{*run_as!q} {*words!q}",
}
_PROCESS = "{python} -m migrator.rollout.executors.local_process --users={users} "
_JOURNAL = "journalctl --no-pager --output=cat --lines=20 --unit "
"""A user without the right to read the journal is told so, and reads it by other means: no other step needs this
right."""
_IN_POD = " -n {namespace} {*exec_options} {pod} -- "
_AS_SERVICE = {"sudo": "sudo -n", "run_as": "sudo -n -u kafka", "unit": "kafka.service"}

PRESETS: Mapping[str, Preset] = {
    "local": Preset(
        {
            **_FILES,
            "stop": _PROCESS + "stop {path} {marks}",
            "start": _PROCESS + "start {path} {marks} {output} {*command}",
            "incarnation": _PROCESS + "incarnation {path} {marks}",
            "log": _PROCESS + "log {path} {marks} {output}",
            "copy": "sh -c {copy_script} migrator {path}",
            "run": "{*words}",
        },
        {"sudo": "", "marks": "kafka.Kafka,controller", "output": "", "users": ""},
        here=True,
        trial=_PROCESS + "trial {path} {marks} {output} {*command}",
    ),
    "systemd": Preset(
        {
            **_FILES,
            "stop": "{*sudo} systemctl stop -- {unit}",
            "start": "{*sudo} systemctl start -- {unit}",
            "incarnation": "sh -c {invocation_script} migrator {unit}",
            "log": _JOURNAL + "{unit}",
            "copy": "{*run_as} sh -c {copy_script} migrator {path}",
            "run": "{*run_as} {*words}",
        },
        _AS_SERVICE,
        here=True,
        trial="{*sudo} systemctl cat -- {unit}",
    ),
    "ssh-systemd": Preset(
        {
            **_FILES_OVER_SSH,
            "stop": _OVER_SSH + "{*sudo!q} systemctl stop -- {unit!q}",
            "start": _OVER_SSH + "{*sudo!q} systemctl start -- {unit!q}",
            "incarnation": _OVER_SSH + "sh -c {invocation_script!q} migrator {unit!q}",
            "log": _OVER_SSH + _JOURNAL + "{unit!q}",
        },
        {**_AS_SERVICE, "ssh": _SSH},
        trial=_OVER_SSH + "{*sudo!q} systemctl cat -- {unit!q}",
    ),
    "ssh": Preset(_FILES_OVER_SSH, {"ssh": _SSH, "sudo": "", "run_as": ""}),
    "statefulset": Preset(
        {
            "read": "{*kubectl} exec" + _IN_POD + "sh -c {read_script} migrator {path}",
            "write": "{*kubectl} exec -i" + _IN_POD + "sh -c {write_script} migrator {path} {backup}",
            "copy": "{*kubectl} exec -i" + _IN_POD + "sh -c {copy_script} migrator {path}",
            "restart": "{*kubectl} delete pod -n {namespace} --ignore-not-found --wait=true -- {pod}",
            "incarnation": "{*kubectl} get pod -n {namespace} --ignore-not-found -o jsonpath={.metadata.uid} -- {pod}",
            "run": "{*kubectl} exec" + _IN_POD + "{*words}",
            "log": "{*kubectl} logs -n {namespace} --tail=20 --all-containers -- {pod}",
        },
        {"kubectl": "kubectl", "namespace": "default", "exec_options": ""},
        there="{*kubectl} get pod -n {namespace} --ignore-not-found -o jsonpath=" + POD_STATUS + " -- {pod}",
        place="pod {pod} of the namespace {namespace}",
        trial="{*kubectl} auth can-i -n {namespace} delete pods/{pod}",
    ),
    "template": Preset({}),
}
"""The presets by name.

* ``local``: processes of this machine that were not started by a service manager, found by the property file and one of
  ``marks`` in their command line, and by their user. ``command`` starts one.
* ``systemd``, ``ssh-systemd``: a unit of this machine, or of a host that ssh reaches.
* ``ssh``: files and commands over ssh; the inventory says how to stop, start and tell an incarnation.
* ``statefulset``: a pod. Its property file has to be on a volume that outlives the pod and that the pod may write: a
  file of a ConfigMap can't be changed from inside, and all pods share it. A deleted pod comes back by itself, so a node
  cannot be stopped for good, unless the inventory says how.
* ``template``: the inventory words everything.
"""


AWAY = "not there"
_LOOPS = "CrashLoopBackOff"
_STARTS = ("", "ContainerCreating", "PodInitializing")
"""Why a container waits in a pod that is well."""


@value
class Pod:
    """``why``: reasons of the pod and of its waiting containers. ``restarts``: of its containers, by Kubernetes."""

    phase: str = AWAY
    why: tuple[str, ...] = ()
    restarts: int = 0

    @classmethod
    def of(cls, output: bytes) -> Self:
        """
        :param output: what the preset's `POD_STATUS` makes kubectl print; nothing for a pod that is not there.
        """
        phase, reason, waits, restarts, *_ = (*output.decode("utf-8", "replace").strip().split("/"), "", "", "")
        why = tuple(word for word in (reason, *waits.split()) if word not in _STARTS and word.isalnum())
        counts = (int(each) for each in restarts.split() if each.isascii() and each.isdecimal())
        return cls(phase if phase in PHASES else AWAY, why, sum(counts))

    @property
    def loops(self) -> bool:
        """Whether Kubernetes restarts a container in a loop. It says so from the second failure on."""
        return _LOOPS in self.why and self.restarts >= LOOP

    @property
    def ails(self) -> bool:
        """Whether the pod is something else than running or about to run."""
        return bool(self.why) or self.phase not in (RUNNING, "Pending", AWAY)

    def __str__(self) -> str:
        why = f" ({', '.join(dict.fromkeys(self.why))})" if self.why else ""
        loop = f": it restarts in a loop, {self.restarts} times so far" if self.loops else ""
        return f"{self.phase}{why}{loop}"
