"""Ready-made executors as data: the command templates of each, and the scripts that they run on a node's host.

The scripts are fixed texts for ``sh -c``; what they are about comes as arguments, and contents of files by standard
input and output. They need a POSIX shell, coreutils or busybox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from migrator.values import value

NO_SUCH_FILE, OTHER_DIGEST, CUT_OFF, NOT_KEPT, NO_SUCH_UNIT, MAY_NOT_LOOK, NOT_NAMED = range(81, 88)
"""Exit codes of the scripts. A command that the operator words has to use the first two likewise."""

DIGEST_LINE = b"migrator-sha256 "
"""The line before the content, with its digest: some ways to a host end too early without saying so."""

READ = """\
set -eu
path=$1
if [ ! -e "$path" ]; then
  above=${path%/*}
  while [ -n "$above" ] && [ ! -e "$above" ]; do above=${above%/*}; done
  if [ ! -x "${above:-/}" ]; then echo "$above may not be looked into" >&2; exit 86; fi
  exit 81
fi
digest=$(sha256sum <"$path")
printf 'migrator-sha256 %s\\n' "${digest%% *}"
exec cat "$path"
"""

WRITE = """\
set -eu
umask 077
digest_of() { found=$(sha256sum <"$1"); echo "${found%% *}"; }
now_of() { if [ -e "$1" ]; then digest_of "$1"; else echo absent; fi; }
path=$1 expected=$2 wanted=$3 backup=${4-}
if [ -L "$path" ]; then path=$(readlink -f "$path"); fi
[ "$(now_of "$path")" = "$expected" ] || exit 82
new=$(mktemp "$path.new.XXXXXX")
old=
trap 'rm -f "$new" ${old:+"$old"}' EXIT
if [ -e "$path" ]; then cp -p "$path" "$new"; fi
cat >"$new"
[ "$(digest_of "$new")" = "$wanted" ] || exit 83
if [ -e "$path" ] && [ "$(stat -c %u:%g:%a "$path")" != "$(stat -c %u:%g:%a "$new")" ]; then exit 84; fi
sync "$new"
if [ -n "$backup" ] && [ -e "$path" ] && [ ! -e "$backup" ]; then
  old=$(mktemp "$backup.new.XXXXXX")
  cp -p "$path" "$old"
  [ "$(digest_of "$old")" = "$expected" ] || exit 82
  sync "$old"
  mv "$old" "$backup"
fi
[ "$(now_of "$path")" = "$expected" ] || exit 82
mv -f "$new" "$path"
sync "${path%/*}/"
"""

COPY = """\
set -eu
umask 077
path=$1 wanted=$2
if [ -e "$path" ] || [ -L "$path" ]; then echo "$path is there already" >&2; exit 82; fi
set -C
cat >"$path"
found=$(sha256sum <"$path")
[ "${found%% *}" = "$wanted" ] || exit 83
"""
"""Run as the user of the service, whose directory it is: whoever has this account could put a link there, and a
program with more rights would follow it."""

INVOCATION = """\
set -eu
shown=$(systemctl show --property=LoadState --property=ActiveState --property=InvocationID \
  --property=ExecMainPID --property=ExecMainStartTimestampMonotonic -- "$1")
state= id= pid=0 since=0
while IFS='=' read -r key text; do
  case $key in
    LoadState) if [ "$text" != loaded ]; then echo "the unit $1 is $text" >&2; exit 85; fi ;;
    ActiveState) state=$text ;;
    InvocationID) id=$text ;;
    ExecMainPID) pid=$text ;;
    ExecMainStartTimestampMonotonic) since=$text ;;
  esac
done <<END
$shown
END
case $state in
  inactive|failed) exit ;;
  '') echo "systemd does not say whether the unit $1 runs" >&2; exit 87 ;;
esac
if [ -z "$id" ] && [ "${pid:-0}" != 0 ] && [ "${since:-0}" != 0 ]; then id=$pid-$since; fi
if [ -z "$id" ]; then echo "the unit $1 is $state" >&2; exit 87; fi
echo "$id"
"""
"""systemd before 232 has no InvocationID, and says nothing of what it does not know: the main process tells then."""

SCRIPTS: Mapping[str, str] = {
    "read_script": READ,
    "write_script": WRITE,
    "copy_script": COPY,
    "invocation_script": INVOCATION,
}
"""What templates may name beside the node's own values."""


@value
class Preset:
    """``commands``: templates by action. ``variables``: defaults of what they name; what has no default must be given.
    ``here``: it touches this machine, so a node with another host is a mistake."""

    commands: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    here: bool = False


UNREACHABLE: Mapping[str, int] = {"ssh": 255, "ansible": 4}
"""By program, the exit code that says that the host was not reached or the connection broke."""

_OVER_SSH = "{*ssh} -- {host} "
_SSH = (
    "ssh -T -o BatchMode=yes -o LogLevel=ERROR -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)
_FILES = {
    "read": "{*sudo} sh -c {read_script} migrator {path}",
    "write": "{*sudo} sh -c {write_script} migrator {path} {expected} {wanted} {backup}",
}
_FILES_OVER_SSH = {
    "read": _OVER_SSH + "{*sudo!q} sh -c {read_script!q} migrator {path!q}",
    "write": _OVER_SSH + "{*sudo!q} sh -c {write_script!q} migrator {path!q} {expected} {wanted} {backup!q}",
    "copy": _OVER_SSH + "{*run_as!q} sh -c {copy_script!q} migrator {path!q} {wanted}",
    "run": _OVER_SSH + "{*run_as!q} {*words!q}",
}
_PROCESS = "{python} -m migrator.rollout.local_process "
_IN_POD = " -n {namespace} {*exec_options} {pod} -- "
_AS_SERVICE = {"sudo": "sudo -n", "run_as": "sudo -n -u kafka", "unit": "kafka.service"}

PRESETS: Mapping[str, Preset] = {
    "local": Preset(
        {
            **_FILES,
            "stop": _PROCESS + "stop {path} {marks}",
            "start": _PROCESS + "start {path} {marks} {output} {*command}",
            "incarnation": _PROCESS + "incarnation {path} {marks}",
            "copy": "sh -c {copy_script} migrator {path} {wanted}",
            "run": "{*words}",
        },
        {"sudo": "", "marks": "kafka.Kafka,controller", "output": ""},
        here=True,
    ),
    "systemd": Preset(
        {
            **_FILES,
            "stop": "{*sudo} systemctl stop -- {unit}",
            "start": "{*sudo} systemctl start -- {unit}",
            "incarnation": "sh -c {invocation_script} migrator {unit}",
            "copy": "{*run_as} sh -c {copy_script} migrator {path} {wanted}",
            "run": "{*run_as} {*words}",
        },
        _AS_SERVICE,
        here=True,
    ),
    "ssh-systemd": Preset(
        {
            **_FILES_OVER_SSH,
            "stop": _OVER_SSH + "{*sudo!q} systemctl stop -- {unit!q}",
            "start": _OVER_SSH + "{*sudo!q} systemctl start -- {unit!q}",
            "incarnation": _OVER_SSH + "sh -c {invocation_script!q} migrator {unit!q}",
        },
        {**_AS_SERVICE, "ssh": _SSH},
    ),
    "ssh": Preset(_FILES_OVER_SSH, {"ssh": _SSH, "sudo": "", "run_as": ""}),
    "statefulset": Preset(
        {
            "read": "{*kubectl} exec" + _IN_POD + "sh -c {read_script} migrator {path}",
            "write": "{*kubectl} exec -i"
            + _IN_POD
            + "sh -c {write_script} migrator {path} {expected} {wanted} {backup}",
            "copy": "{*kubectl} exec -i" + _IN_POD + "sh -c {copy_script} migrator {path} {wanted}",
            "restart": "{*kubectl} delete pod -n {namespace} --wait=true -- {pod}",
            "incarnation": "{*kubectl} get pod -n {namespace} --ignore-not-found -o jsonpath={.metadata.uid} -- {pod}",
            "run": "{*kubectl} exec" + _IN_POD + "{*words}",
        },
        {"kubectl": "kubectl", "namespace": "default", "exec_options": ""},
    ),
    "template": Preset({}),
}
"""By name.

* ``local``: processes of this machine that were not started by a service manager, found by the property file and one of
  ``marks`` in their command line. ``command`` starts one.
* ``systemd``, ``ssh-systemd``: a unit of this machine, or of one that ssh reaches.
* ``ssh``: files and commands over ssh; how to stop, to start and to tell an incarnation is worded in the inventory.
* ``statefulset``: a pod. Its property file has to be on a volume that outlives the pod, and that the pod may write: a
  file of a ConfigMap can't be changed from inside, and is one for all pods. What is deleted comes back by itself, so
  nothing can be stopped for good, unless the inventory says how.
* ``template``: everything is worded in the inventory.
"""
