from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from migrator.config.load import settings_from
from migrator.config.types import Secret
from migrator.errors import OperatorError
from tests.config.test_settings import MIGRATING

PACKAGE = "org.apache.kafka.common.config.provider."
FILE = {"config.providers": "p", "config.providers.p.class": PACKAGE + "FileConfigProvider"}
DIRECTORY = {"config.providers": "p", "config.providers.p.class": PACKAGE + "DirectoryConfigProvider"}
ENVIRONMENT = {"config.providers": "p", "config.providers.p.class": PACKAGE + "EnvVarConfigProvider"}
SECRET = "password.encoder.secret"


def secret_of(provider: dict[str, str], placeholder: str, **parameters: str) -> str:
    """The encoder secret that a file gets from there."""
    named = {f"config.providers.p.param.{name.replace('_', '.')}": text for name, text in parameters.items()}
    secret = settings_from(MIGRATING | provider | named | {SECRET: placeholder}, "f")[0].password_encoder_secret
    assert secret is not None
    return secret.reveal()


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """``allowed`` with a file of properties and a file of one value, ``forbidden`` with the same, and links out."""
    for name in ("allowed", "forbidden", "allowed-not"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.properties").write_text("key=of-a-file\n")
        (tmp_path / name / "key").write_text("of-a-directory\n")
    (tmp_path / "allowed" / "out").symlink_to(tmp_path / "forbidden")
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "forbidden" / "key")
    (tmp_path / "allowed" / "within").symlink_to(tmp_path / "allowed" / "key")
    (tmp_path / "way").symlink_to(tmp_path / "allowed")
    return tmp_path


def test_values_may_stand_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("encoder=from-file\n")
    monkeypatch.setenv("MIGRATOR_TEST_CONNECT", "zk:2181")
    provider = "org.apache.kafka.common.config.provider."
    settings, _ = settings_from(
        MIGRATING
        | {
            "config.providers": "file,env",
            "config.providers.file.class": provider + "FileConfigProvider",
            "config.providers.env.class": provider + "EnvVarConfigProvider",
            "password.encoder.secret": f"${{file:{tmp_path}/secrets.properties:encoder}}",
            "zookeeper.connect": "${env:MIGRATOR_TEST_CONNECT}/chroot",
        },
        "f",
    )
    assert settings.password_encoder_secret == Secret("from-file")
    assert settings.zookeeper_connect == "zk:2181/chroot"


def test_a_password_that_does_not_resolve_is_refused_without_its_text() -> None:
    changes = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "password.encoder.secret": "${file:/no/such/file:encoder}",
    }
    with pytest.raises(OperatorError, match="/no/such/file"):
        settings_from(MIGRATING | changes, "f")


@pytest.mark.parametrize(
    "parameter", [None, "", "{d}/allowed", "/usr, {d}/allowed/", "{d}/x/../allowed", "{d}/way,{d}/allowed"]
)
def test_what_is_below_an_allowed_path_is_read(secrets: Path, parameter: str | None) -> None:
    parameters = {} if parameter is None else {"allowed_paths": parameter.format(d=secrets)}
    assert secret_of(FILE, f"${{p:{secrets}/allowed/all.properties:key}}", **parameters) == "of-a-file"
    assert secret_of(FILE, f"${{p:{secrets}/forbidden/../allowed/all.properties:key}}", **parameters) == "of-a-file"
    assert secret_of(DIRECTORY, f"${{p:{secrets}/allowed:key}}", **parameters) == "of-a-directory"
    assert secret_of(DIRECTORY, f"${{p:{secrets}/allowed:within}}", **parameters) == "of-a-directory"


@pytest.mark.parametrize(
    ("provider", "placeholder"),
    [
        (FILE, "${p:{d}/forbidden/all.properties:key}"),
        (FILE, "${p:{d}/allowed/../forbidden/all.properties:key}"),
        (FILE, "${p:{d}/allowed-not/all.properties:key}"),
        (FILE, "${p:{d}/allowed/out/all.properties:key}"),
        (FILE, "${p:allowed/all.properties:key}"),
        (FILE, "${p::key}"),
        (DIRECTORY, "${p:{d}/forbidden:key}"),
        (DIRECTORY, "${p:{d}/allowed/out:key}"),
        (DIRECTORY, "${p:{d}/allowed:link}"),
        (DIRECTORY, "${p:{d}/allowed:../forbidden/key}"),
        (DIRECTORY, "${p:{d}/allowed:..}"),
    ],
)
def test_nothing_else_is(secrets: Path, provider: dict[str, str], placeholder: str) -> None:
    with pytest.raises(OperatorError) as caught:
        secret_of(provider, placeholder.replace("{d}", str(secrets)), allowed_paths=f"{secrets}/allowed")
    assert "of-a-" not in str(caught.value)


def test_a_key_of_a_directory_never_climbs_out_of_it(secrets: Path) -> None:
    with pytest.raises(OperatorError, match="no file's name"):
        secret_of(DIRECTORY, f"${{p:{secrets}/allowed:../forbidden/key}}")


def test_the_environment_is_read_where_its_pattern_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_TEST_SECRET", "of-the-environment")
    for pattern in ({}, {"allowlist_pattern": "MIGRATOR_.*"}, {"allowlist_pattern": "(A|MIGRATOR_TEST_SECRET)"}):
        assert secret_of(ENVIRONMENT, "${p:MIGRATOR_TEST_SECRET}", **pattern) == "of-the-environment"
    for pattern in ({"allowlist_pattern": "MIGRATOR_TEST"}, {"allowlist_pattern": ""}, {"allowlist_pattern": "x|y"}):
        with pytest.raises(OperatorError, match="does not allow"):
            secret_of(ENVIRONMENT, "${p:MIGRATOR_TEST_SECRET}", **pattern)
    with pytest.raises(OperatorError, match="no path"):
        secret_of(ENVIRONMENT, "${p:path:MIGRATOR_TEST_SECRET}")


@pytest.mark.parametrize(
    ("provider", "parameter", "text"),
    [
        (FILE, "allowed.path", "/usr"),
        (FILE, "allowlist.pattern", ".*"),
        (ENVIRONMENT, "allowed.paths", "/usr"),
        (FILE, "allowed.paths", "relative"),
        (FILE, "allowed.paths", "/no/such/path"),
        (ENVIRONMENT, "allowlist.pattern", "[a-z&&[^b]]"),
        (ENVIRONMENT, "allowlist.pattern", "\\p{Alpha}+"),
        (ENVIRONMENT, "allowlist.pattern", "("),
    ],
)
def test_a_parameter_that_a_provider_does_not_have_or_cannot_use_is_refused(
    provider: dict[str, str], parameter: str, text: str
) -> None:
    key = f"config.providers.p.param.{parameter}"
    with pytest.raises(OperatorError) as caught:
        settings_from(MIGRATING | provider | {key: text}, "f")
    assert caught.value.where == f"f: {key}"
    assert caught.value.remedy


def test_keys_of_one_listener_have_placeholders_too_and_passwords_are_trimmed_as_kafka_does(secrets: Path) -> None:
    key = "listener.name.controller.ssl.key.password"
    placeholder = f"${{p:{secrets}/allowed:key}}"
    settings, _ = settings_from(MIGRATING | DIRECTORY | {key: placeholder, SECRET: placeholder}, "f")
    assert settings.explicit[key] == "of-a-directory\n"
    assert settings.password_encoder_secret == Secret("of-a-directory")
    assert "of-a-directory" not in repr(settings)


def test_a_placeholder_that_nobody_resolves_is_no_secret() -> None:
    with pytest.raises(OperatorError, match="is a placeholder"):
        settings_from(MIGRATING | {SECRET: "${vault:secret:encoder}"}, "f")


@pytest.mark.parametrize("key", ["node.id", "controller.quorum.election.timeout.ms", "migrator.finish.require.verify"])
def test_a_value_of_another_file_is_not_shown_also_under_a_key_that_is_no_password(secrets: Path, key: str) -> None:
    placeholder = f"${{p:{secrets}/allowed:key}}"
    with pytest.raises(OperatorError) as caught:
        settings_from(MIGRATING | DIRECTORY | {key: placeholder}, "f")
    assert placeholder in str(caught.value)
    assert "of-a-directory" not in "".join(traceback.format_exception(caught.value))
