"""Each controller as each other one sees it, by all their files."""

from __future__ import annotations

from pathlib import Path

from migrator.parts.certificates import Authority, common_name
from migrator.preflight.checks.security import voters_without_right
from migrator.preflight.evidence import Evidence, MachineFacts
from migrator.preflight.files import FileGatherer
from tests.node.access.test_own_principal import PROTECTED

RULE = "RULE:^CN=(.*)$/$1/"


def files(directory: Path, super_users: dict[int, str], rules: dict[int, str]) -> Evidence:
    """Two controllers with certificates of their own."""
    authority = Authority("ca")
    trust = str(authority.trust(directory / "ca.pem"))
    found = []
    for node, names in super_users.items():
        keys = PROTECTED | {
            "node.id": str(node),
            "log.dirs": str(directory / str(node)),
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.store(directory / f"{node}.pem", common_name(f"c{node}"))),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trust,
            "ssl.principal.mapping.rules": rules.get(node, "DEFAULT"),
            "super.users": names,
        }
        path = directory / f"{node}.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
        controller = FileGatherer().controller(path, is_of_this_host=True)
        assert controller is not None
        assert controller.problems == ()
        found.append(controller)
    return Evidence(tuple(found), (), (), None, MachineFacts(0), ())


def test_whoever_is_missing_in_a_list_is_named_there(tmp_path: Path) -> None:
    (found,) = voters_without_right(files(tmp_path, {3000: "User:CN=c3000;User:CN=c3001", 3001: "User:CN=c3001"}, {}))
    assert found.where == f"{tmp_path}/3001.properties: super.users"
    assert "it takes controller 3000 for User:CN=c3000" in found.what


def test_each_sees_the_others_by_its_own_rules(tmp_path: Path) -> None:
    by_name, by_subject = "User:c3000;User:c3001", "User:CN=c3000;User:CN=c3001"
    assert not list(voters_without_right(files(tmp_path, {3000: by_name, 3001: by_subject}, {3000: RULE})))
    nobody = files(tmp_path, {3000: by_name, 3001: by_subject}, {3000: "RULE:^OU=(.*)$/$1/"})
    assert {found.where for found in voters_without_right(nobody)} == {
        f"{tmp_path}/3000.properties: ssl.principal.mapping.rules"
    }
