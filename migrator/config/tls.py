"""Translates Java's names of TLS versions and cipher suites for Python's `ssl`.

Python's `ssl` sets the suites of TLS 1.2 one by one, and those of TLS 1.3 not at all: a choice that cannot be followed
exactly is refused. Source: IANA's registry of TLS cipher suites, ``openssl ciphers -stdname``.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping

from migrator.config.types import split_list
from migrator.values import value

VERSIONS: Mapping[str, ssl.TLSVersion] = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS = ("TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello")
SUITES_OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
SUITES_OF_TLS_1_2: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
"""Java's name (also IANA's) -> OpenSSL's."""


@value
class TlsChoice:
    """``versions`` by Java's names, the older first; ``ciphers``: those of TLS 1.2 in OpenSSL's form, "" for OpenSSL's
    own choice."""

    versions: tuple[str, ...] = tuple(VERSIONS)
    ciphers: str = ""

    def apply(self, context: ssl.SSLContext) -> None:
        """Restrict ``context`` to this choice."""
        context.minimum_version, context.maximum_version = VERSIONS[self.versions[0]], VERSIONS[self.versions[-1]]
        if self.ciphers:
            context.set_ciphers(self.ciphers)


def tls_versions(text: str | None) -> tuple[str, ...]:
    """The versions that ``ssl.enabled.protocols`` allows, the older first; both when it is not set.

    :raises ValueError: the value names an unsafe or unknown version.
    """
    names = split_list(text or "") or tuple(VERSIONS)
    for name in names:
        if name not in VERSIONS:
            why = "is no longer safe" if name in OLD_VERSIONS else "is not known"
            raise ValueError(f"{name} {why}: only {', '.join(VERSIONS)} are supported")
    return tuple(name for name in VERSIONS if name in names)


def suite_names(text: str | None) -> tuple[str, ...]:
    """The suites that ``ssl.cipher.suites`` names.

    :raises ValueError: a suite is unknown.
    """
    names = split_list(text or "")
    for name in names:
        if name not in SUITES_OF_TLS_1_2 and name not in SUITES_OF_TLS_1_3:
            close = difflib.get_close_matches(name, [*SUITES_OF_TLS_1_2, *SUITES_OF_TLS_1_3], n=1)
            hint = f", did you mean {close[0]}?" if close else ""
            raise ValueError(f"{name} is not a suite that can be used here{hint}")
    return names


def tls_choice(versions: tuple[str, ...], suites: str | None) -> TlsChoice:
    """Versions and suites together; as in Java, a version without a suite is not used.

    :param versions: of `tls_versions`.
    :param suites: ``ssl.cipher.suites``, None or "" for the TLS library's own choice.
    :raises ValueError: a suite is unknown, or the choice cannot be followed.
    """
    names = suite_names(suites)
    if not names:
        return TlsChoice(versions)
    older = [SUITES_OF_TLS_1_2[name] for name in names if name in SUITES_OF_TLS_1_2]
    newer = [name for name in names if name in SUITES_OF_TLS_1_3]
    spoken = tuple(it for it in versions if (newer if it == "TLSv1.3" else older))
    if not spoken:
        raise ValueError(f"the key names no suite of {' or '.join(versions)}")
    missing = sorted(set(SUITES_OF_TLS_1_3) - set(newer))
    if "TLSv1.3" in spoken and missing:
        raise ValueError(
            f"it leaves out {', '.join(missing)}, and suites of TLSv1.3 can be used only all together here: name all "
            "of them, or none"
        )
    return TlsChoice(spoken, ":".join(older))
