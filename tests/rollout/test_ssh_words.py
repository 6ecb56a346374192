"""The presets lend nothing to a host that ssh reaches, whatever the operator's own configuration of ssh says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from migrator.rollout.executors.presets import PRESETS
from tests.results import ROOT

OVER_SSH = ("ssh", "ssh-systemd")
NEEDED = "-a -k -x -o ClearAllForwardings=yes -o PermitLocalCommand=no -o Tunnel=no"
LENDS = """Host *
  ForwardAgent yes
  ForwardX11 yes
  ForwardX11Trusted yes
  LocalForward 127.0.0.1:9092 127.0.0.1:9092
  RemoteForward 2222 127.0.0.1:22
  DynamicForward 1080
  Tunnel yes
  PermitLocalCommand yes
  LocalCommand touch owned
"""
SAYS_NOTHING = {
    "forwardagent": "no",
    "forwardx11": "no",
    "clearallforwardings": "yes",
    "permitlocalcommand": "no",
    "tunnel": "false",
}


def shown(words: list[str]) -> dict[str, str]:
    """The options of ssh, from its arguments and its configuration."""
    told = subprocess.run([*words, "-T", "host.example.com"], capture_output=True, text=True, check=True)
    assert told.stderr == ""
    return {key: text for key, _, text in (line.partition(" ") for line in told.stdout.splitlines())}


@pytest.mark.parametrize("name", OVER_SSH)
def test_a_host_is_lent_nothing(name: str, tmp_path: Path) -> None:
    program, *words = shlex.split(PRESETS[name].variables["ssh"])
    if shutil.which(program) is None and "CI" not in os.environ:
        pytest.skip("there is no ssh here")
    config = tmp_path / "config"
    config.write_text(LENDS)
    config.chmod(0o600)
    forwards = {"localforward", "remoteforward", "dynamicforward"}
    bare = shown([program, "-F", str(config), "-G"])
    assert bare["forwardagent"] == "yes", "the configuration is read"
    assert forwards <= bare.keys()
    ours = shown([program, "-F", str(config), *words, "-G"])
    assert {key: ours[key] for key in SAYS_NOTHING} == SAYS_NOTHING
    assert forwards.isdisjoint(ours)


@pytest.mark.parametrize("name", OVER_SSH)
def test_the_words_that_the_page_names_are_those_of_the_preset(name: str) -> None:
    """Kerberos tickets (-k) are not shown by every ssh."""
    assert NEEDED in PRESETS[name].variables["ssh"]
    assert f"`{NEEDED}`" in (ROOT / "docs" / "rollout-executors.md").read_text(encoding="utf-8")


def test_ansible_lends_nothing_either() -> None:
    example = yaml.safe_load((ROOT / "deploy" / "rollout" / "ansible.yaml").read_text(encoding="utf-8"))
    default = example["executors"]["default"]
    commands = [words.split() for words in default["commands"].values()]
    by_ansible = [words for words in commands if words[0] == "ansible"]
    assert by_ansible
    assert all("--ssh-common-args={ssh_options}" in words for words in by_ansible)
    options = default["variables"]["ssh_options"].split()
    assert options[::2] == ["-o"] * 3, "sftp, which gets the same words, has other letters"
    assert options[1::2] == ["ForwardAgent=no", "ForwardX11=no", "GSSAPIDelegateCredentials=no"]


def test_no_page_and_no_example_turns_it_on() -> None:
    texts = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.yaml"), ROOT / "README.md"]
    lends = re.compile(r"ForwardAgent[ =]yes|ForwardX11[ =]yes|\bssh (-\S+ )*-[AKXYLRDW]\b")
    assert [path for path in texts if lends.search(path.read_text(encoding="utf-8"))] == []
