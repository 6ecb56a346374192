"""The scripts that the presets run on a node's host.

They are fixed texts for ``sh -c``; they need a POSIX shell, and coreutils or busybox. Names and paths are arguments.
Contents and digests of files travel by standard input and output: every user of a host sees the arguments of a process,
sudo's log keeps them, and the digest of a file helps to guess a password in it.

A user who may write to a directory can replace any name in it by a link, at any time, also between a check of the name
and its use. So root reads and writes a file only where no other user can change a name on the way to it. Otherwise the
script acts as the owner of the first directory that is not safe, who can then do no more than he could anyway.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

(
    NO_SUCH_FILE,
    OTHER_DIGEST,
    CUT_OFF,
    NOT_KEPT,
    NO_SUCH_UNIT,
    MAY_NOT_LOOK,
    NOT_NAMED,
    NOT_AS_ROOT,
    NOT_REGULAR,
) = range(81, 90)
"""Exit codes of the scripts. A command that the inventory words has to use the first two in the same meaning."""

DIGEST_LINE = b"migrator-sha256 "
"""How the line before a content begins. From a host, the digest of the content follows, because some transports cut a
content short without an error. To a host, two digests follow: see `head_of`."""


def head_of(expected: str, wanted: str) -> bytes:
    """The first line of the standard input of `WRITE` and `COPY`.

    :param expected: SHA-256 (hex) of the old file, or ``absent``.
    :param wanted: SHA-256 (hex) of the content.
    """
    return DIGEST_LINE + f"{expected} {wanted}\n".encode()


_AS_OWNER = r"""set -eu
cd /
owner_of_way() {
  owner= at= left=${1#/} links=0
  if [ "$(id -u)" != 0 ]; then return 0; fi
  while [ -n "$left" ]; do
    name=${left%%/*}
    case $left in */*) left=${left#*/} ;; *) left= ;; esac
    case $name in ''|.) continue ;; ..) at=${at%/*}; continue ;; esac
    facts=$(stat -c '%a %u %U' "$at/") mode=${facts%% *}
    owner=${facts#* }
    case $owner,$mode in
      0\ *,[1357]??[2367]|0\ *,[1357]?[2367]?) owner=$(stat -c '%u %U' "$at/$name" 2>/dev/null || echo 65534) ;;
      0\ *,*[2367]|0\ *,*[2367]?) owner=65534 ;;
    esac
    if [ "${owner%% *}" != 0 ]; then unsafe=$at/; return 0; fi
    owner=
    if [ -L "$at/$name" ]; then
      links=$((links + 1))
      if [ "$links" -gt 40 ]; then echo "too many links: $1" >&2; exit 88; fi
      left=$(readlink "$at/$name")${left:+"/$left"}
      case $left in /*) at= left=${left#/} ;; esac
    elif [ -d "$at/$name" ]; then
      at=$at/$name
    else
      return 0
    fi
  done
}
as() {
  who=$1 script=$2
  shift 2
  if [ -z "$who" ]; then sh -c "$script" migrator "$@"; return; fi
  uid=${who%% *} user=${who#* } gid=65534 groups=--clear-groups code=0
  if [ "$who" = 65534 ]; then user=nobody; fi
  if [ "$(id -u "$user" 2>/dev/null)" = "$uid" ]; then gid=$(id -g "$user") groups=--init-groups; fi
  if setpriv --reuid="$uid" --regid="$gid" "$groups" true 2>/dev/null; then
    set -- setpriv --reuid="$uid" --regid="$gid" "$groups" sh -c "$script" migrator "$@"
  else
    set -- su -s /bin/sh -c "$script" "$user" migrator "$@"
  fi
  env -i PATH="$PATH" NOT_OWNED=88 "$@" || code=$?
  case $code in 0|81|82|83|84|86|89) return "$code" ;; esac
  echo "others than root may change $unsafe, so only user $user works there" >&2
  return 88
}
"""
"""``owner_of_way PATH`` sets ``owner`` to id and name of the user who can change a name on the way to PATH, links
included; to the id of nobody where more than one user can; to "" where root alone can, or the caller is not root. ``as
OWNER SCRIPT ARGUMENT...`` runs SCRIPT with the rights of OWNER; of root's it has only the open input and output."""

_SHARED = r"""set -eu
umask 077
digest_of() { found=$(sha256sum <"$1"); echo "${found%% *}"; }
now_of() { if [ -e "$1" ]; then digest_of "$1"; else echo absent; fi; }
behind_links() { if [ -L "$1" ]; then readlink -f "$1"; else echo "$1"; fi; }
copy_of() { cp --preserve=all "$1" "$2" 2>/dev/null || cp -p "$1" "$2"; }
mode() { stat -c %a "$1"; }
SELinux_context() { found=$(stat -c %C "$1" 2>/dev/null) || found=; echo "${found#*:}"; }
access_list() { getfacl -cnp -- "$1" 2>/dev/null || ls -ldn -- "$1" | cut -c 11 | tr -d ' '; }
check_kept() {
  if [ "$(stat -c %u:%g "$1")" != "$(stat -c %u:%g "$2")" ]; then exit "${NOT_OWNED:-84}"; fi
  for fact in mode SELinux_context access_list; do
    before=$("$fact" "$1") after=$("$fact" "$2")
    if [ "$before" = "$after" ]; then continue; fi
    echo "$fact of the old file:" ${before:-none} | tr _ ' ' | cut -c 1-120 >&2
    echo "and of the new one:" ${after:-none} | cut -c 1-120 >&2
    exit 84
  done
}
"""
"""``copy_of FILE NEW`` copies with all attributes that can be kept; busybox has ``-p`` alone, which loses access lists
(ACL). ``check_kept`` ends the script if other users could read the new file; the user of an SELinux context is always
that of the writer. It stands in `WRITE` once: an API server takes the whole command in one line of a request, and a
proxy before it may take 8 KiB only."""

_LOOK = r"""set -eu
path=$1
if [ ! -e "$path" ]; then
  above=${path%/*}
  while [ -n "$above" ] && [ ! -e "$above" ]; do above=${above%/*}; done
  if [ ! -x "${above:-/}" ]; then echo "$above may not be looked into" >&2; exit 86; fi
  exit 81
fi
if [ ! -f "$path" ]; then echo "$path is not a regular file" >&2; exit 89; fi
"""

_SHOW = rf"""{_LOOK}digest=$(sha256sum <"$path")
printf 'migrator-sha256 %s\n' "${{digest%% *}}"
exec cat "$path"
"""

_SHOW_GROWING = rf"""{_LOOK}: <"$path"
size=$(stat -L -c %s "$path")
digest=$(head -c "$size" "$path" | sha256sum)
printf 'migrator-sha256 %s\n' "${{digest%% *}}"
exec head -c "$size" "$path"
"""
"""A log grows while it is read: it is shown up to the end that it had first."""

_MAKE = r"""path=$(behind_links "$1")
read -r expected wanted || exit 83
[ "$(now_of "$path")" = "$expected" ] || exit 82
name=$path.new
case $wanted in *[!0]*) ;; *) name=$path.migrator-trial; rm -f "$name".??????; esac
new=$(mktemp "$name.XXXXXX")
trap 'rm -f "$new"' EXIT
if [ -e "$path" ]; then copy_of "$path" "$new"; fi
cat >"$new"
if [ -e "$path" ]; then check_kept "$path" "$new"; fi
[ "$(digest_of "$new")" = "$wanted" ] || exit 83
sync "$new"
trap - EXIT
echo "$new"
"""
"""Writes the new file beside the old one, and prints its name. The digests are the first line of the input. A content
with another digest comes last of all that can fail: a trial sends zeros, and ends there. The file of a trial has a
name that nobody else gives to a file, so that the next trial removes what one that was killed has left."""

_KEEP = r"""backup=$1 path=$(behind_links "${2-}")
read -r expected || exit 82
if [ -e "$backup" ]; then exit; fi
old=$(mktemp "$backup.new.XXXXXX")
trap 'rm -f "$old"' EXIT
if [ -n "$path" ]; then copy_of "$path" "$old"; else cat >"$old"; fi
[ "$(digest_of "$old")" = "$expected" ] || exit 82
if [ -n "$path" ]; then check_kept "$path" "$old"; fi
sync "$old"
mv "$old" "$backup"
"""
"""Writes the backup: of a file, or of standard input where the file's place belongs to another user. The digest comes
first there."""

_PUT = r"""path=$(behind_links "$1") new=$2
read -r expected || exit 82
[ "$(now_of "$path")" = "$expected" ] || exit 82
mv -f "$new" "$path"
sync "${path%/*}/"
"""

READ = rf"""{_AS_OWNER}owner_of_way "$1"
as "$owner" {shlex.quote(_SHOW)} "$1"
"""

READ_GROWING = rf"""{_AS_OWNER}owner_of_way "$1"
as "$owner" {shlex.quote(_SHOW_GROWING)} "$1"
"""
"""Replaces `READ` for a file to which others only append."""

_HEAD = """read -r mark expected wanted || exit 83
[ "$mark" = migrator-sha256 ] || exit 83
"""
"""A shell reads no more than this line, so the content stays for the next command."""

WRITE = rf"""{_AS_OWNER}path=$1 backup=${{2-}}
shared={shlex.quote(_SHARED)}
keep=$shared{shlex.quote(_KEEP)}
{_HEAD}owner_of_way "$path"
of_path=$owner of_backup=
if [ -n "$backup" ]; then owner_of_way "$backup"; of_backup=$owner; fi
case $of_path,$of_backup in
  65534,*|*,65534) echo "more than one user may change $unsafe" >&2; exit 88 ;;
esac
new=$({{ printf '%s %s\n' "$expected" "$wanted"; cat; }} | as "$of_path" "$shared"{shlex.quote(_MAKE)} "$path")
trap 'as "$of_path" '\''rm -f "$1"'\'' "$new"' EXIT
if [ -z "$backup" ] || [ "$expected" = absent ]; then
  :
elif [ "$of_path" = "$of_backup" ]; then
  printf '%s\n' "$expected" | as "$of_backup" "$keep" "$backup" "$path"
else
  {{ printf '%s\n' "$expected"; as "$of_path" 'cat "$1"' "$path" </dev/null; }} |
    as "$of_backup" "$keep" "$backup"
fi
printf '%s\n' "$expected" | as "$of_path" "$shared"{shlex.quote(_PUT)} "$path" "$new"
trap - EXIT
"""

COPY = f"""\
set -eu
umask 077
path=$1
{_HEAD}if [ -e "$path" ] || [ -L "$path" ]; then echo "$path is there already" >&2; exit 82; fi
set -C
cat >"$path"
found=$(sha256sum <"$path")
[ "${{found%% *}}" = "$wanted" ] || exit 83
"""
"""Runs as the user of the service, who owns the directory. This user could put a link there, and a program with more
rights would follow it."""

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
"""systemd before 232 has no InvocationID, and does not mention what it does not know; then the main process is the
incarnation."""

SCRIPTS: Mapping[str, str] = {
    "read_script": READ,
    "write_script": WRITE,
    "copy_script": COPY,
    "invocation_script": INVOCATION,
}
"""The names that templates may use beside the node's own values."""
