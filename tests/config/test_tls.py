from __future__ import annotations

import shutil
import ssl
import subprocess

import pytest

from migrator.config.tls import SUITES_OF_TLS_1_2, SUITES_OF_TLS_1_3, VERSIONS, TlsChoice, tls_choice, tls_versions

BOTH = tuple(VERSIONS)
SOME = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
NEW = ",".join(SUITES_OF_TLS_1_3)


@pytest.mark.parametrize(
    ("text", "versions"),
    [(None, BOTH), ("", BOTH), ("TLSv1.3", ("TLSv1.3",)), (" TLSv1.3 , TLSv1.2", BOTH), ("TLSv1.2", ("TLSv1.2",))],
)
def test_versions_are_taken_as_named(text: str | None, versions: tuple[str, ...]) -> None:
    assert tls_versions(text) == versions


@pytest.mark.parametrize("text", ["TLSv1.1,TLSv1.2", "SSLv3", "TLS1.3", "tlsv1.3", "TLSv1.2,"])
def test_versions_are_never_narrowed_in_silence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no longer safe|is not known"):
        tls_versions(text)


@pytest.mark.parametrize(
    ("versions", "suites", "choice"),
    [
        (BOTH, None, TlsChoice(BOTH)),
        (BOTH, SOME, TlsChoice(("TLSv1.2",), "ECDHE-RSA-AES256-GCM-SHA384")),
        (BOTH, NEW, TlsChoice(("TLSv1.3",))),
        (BOTH, f"{SOME},{NEW}", TlsChoice(BOTH, "ECDHE-RSA-AES256-GCM-SHA384")),
        (("TLSv1.2",), f"{SOME},TLS_AES_256_GCM_SHA384", TlsChoice(("TLSv1.2",), "ECDHE-RSA-AES256-GCM-SHA384")),
    ],
)
def test_a_version_without_a_suite_is_not_spoken(
    versions: tuple[str, ...], suites: str | None, choice: TlsChoice
) -> None:
    assert tls_choice(versions, suites) == choice


@pytest.mark.parametrize(
    ("versions", "suites", "said"),
    [
        (BOTH, "TLS_AES_256_GCM_SHA384", "all together"),
        (("TLSv1.3",), SOME, "no suite of TLSv1.3"),
        (("TLSv1.2",), NEW, "no suite of TLSv1.2"),
        (BOTH, "SSL_RSA_WITH_RC4_128_MD5", "not a suite that can be used"),
        (BOTH, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA348", f"did you mean {SOME}"),
        (BOTH, "ECDHE-RSA-AES256-GCM-SHA384", "not a suite that can be used"),
    ],
)
def test_what_cannot_be_honoured_is_refused(versions: tuple[str, ...], suites: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tls_choice(versions, suites)


@pytest.mark.parametrize("name", SUITES_OF_TLS_1_2)
def test_the_tls_library_sets_each_suite_alone(name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_choice(BOTH, name).apply(context)
    older = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert older == [SUITES_OF_TLS_1_2[name]]
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_2


def test_the_names_are_those_of_openssl() -> None:
    openssl = shutil.which("openssl")
    assert openssl
    lines = subprocess.run(
        [openssl, "ciphers", "-stdname", "ALL:@SECLEVEL=0"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    known = {(fields[0], fields[2]) for fields in map(str.split, lines)}
    assert SUITES_OF_TLS_1_2.items() <= known
    assert {(name, name) for name in SUITES_OF_TLS_1_3} <= known
