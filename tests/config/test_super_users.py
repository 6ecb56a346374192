"""Super users who are nobody, and who a process is: named with file, key, value and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.load import settings_from, typed_settings
from migrator.config.process_rights import changed_by_others, read_by_others, rights_of_process
from migrator.config.super_users import unmatchable_entries
from tests.config.test_settings import MINIMAL


@pytest.mark.parametrize(
    ("text", "remedies"),
    [
        ("User:admin;User:CN=a,OU=b:c; User:x y ;", []),
        ("user:admin", ["Write User:admin"]),
        ("User:a;Group:b", ["Write User:b"]),
        ("User:admin # the boss", ["Write User:admin, and the comment above it"]),
        ("User:admin // the boss", ["Write User:admin, and the comment above it"]),
        ("User: admin", ["Write User:admin, typed again"]),
        ("User:admin\u00a0", ["Write User:admin, typed again"]),
        ("User:'admin'", ["Write User:admin"]),
        ("User:*", ["Write each name in full"]),
        ("User:CN=a, O=b", ["Write User:CN=a,O=b"]),
        ("User:CN=Smith\\, x=1,O=b", []),
        ("User:CN=room #5,O=b", []),
        ("User:admin #boss", ["Write User:admin, and the comment above it"]),
        ("User:CN=a,O=b # boss", ["Write User:CN=a,O=b, and the comment above it"]),
    ],
)
def test_names_that_nobody_has_are_warned_of(text: str, remedies: list[str]) -> None:
    settings, warnings = settings_from(MINIMAL | {"super.users": text}, "controller.properties")
    assert [(key, remedy) for key, _, remedy in unmatchable_entries(settings)] == [
        ("super.users", it) for it in remedies
    ]
    said = [it for it in warnings if it.startswith("controller.properties: super.users: ")]
    assert len(said) == len(remedies)
    assert all("names nobody" in it for it in said)


def test_with_mapping_rules_a_name_may_have_blanks() -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^(.*)$/$1/", "super.users": "User:CN=a, O=b"}
    assert not list(unmatchable_entries(typed_settings(MINIMAL | rules, "f")))


def test_a_blank_that_java_does_not_know_belongs_to_the_name() -> None:
    """Else somebody would be a super user here who is none at a stock controller."""
    settings = typed_settings(MINIMAL | {"super.users": "User:admin\u00a0 "}, "f")
    assert settings.super_user_names == {"User:admin\u00a0"}


def test_root_is_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = typed_settings(MINIMAL | {"log.dirs": str(tmp_path)}, "f")
    for user, keys in ((0, ["(the process)"]), (1000, [])):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        assert [key for key, _, _ in rights_of_process(settings)] == keys


def test_directories_that_all_may_change_are_warned_of(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    directory = shared / "metadata"
    directory.mkdir(parents=True)
    for mode, found in ((0o777, [shared]), (0o1777, []), (0o755, [])):
        shared.chmod(mode)
        assert list(changed_by_others(directory)) == found
    shared.chmod(0o777)
    settings = typed_settings(MINIMAL | {"metadata.log.dir": str(directory)}, "f")
    said = [(key, remedy) for key, _, remedy in rights_of_process(settings) if key != "(the process)"]
    assert said == [("metadata.log.dir", f"chmod o-w {shared}")]


def test_who_may_not_enter_above_reads_nothing_below(tmp_path: Path) -> None:
    directory = tmp_path / "metadata"
    directory.mkdir()
    directory.chmod(0o755)
    tmp_path.chmod(0o700)
    assert not read_by_others(directory)
    assert not read_by_others(tmp_path / "missing")
    assert read_by_others(Path("/"))
