"""Key and trust stores as PEM text (KIP-651), the one kind that Python's TLS reads.

`tls` and `stores` call it to fill an `ssl.SSLContext`. An incomplete or unusable store is an `OperatorError` that names
the key of the property file: a file that is only half written is never loaded.
"""

from __future__ import annotations

import os
import re
import ssl

from migrator.errors import OperatorError
from migrator.values import value

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]+-----")
_HEADER = re.compile(r"^[A-Za-z-]+:.*$", re.MULTILINE)


@value
class PemStore:
    """The text of a store: certificates, and in a key store the private key.

    Property files may fold lines, so the base 64 blocks are wrapped anew.
    """

    text: str

    def __repr__(self) -> str:
        return "PemStore([hidden])"

    @property
    def certificates(self) -> str:
        return "".join(_wrap(kind, body) for kind, body in _BLOCK.findall(self.text) if kind == "CERTIFICATE")

    @property
    def private_key(self) -> str:
        return "".join(_wrap(kind, body) for kind, body in _BLOCK.findall(self.text) if kind.endswith("PRIVATE KEY"))


def load_key(context: ssl.SSLContext, store: PemStore, password: str | None, key: str) -> None:
    """Give ``context`` its certificate and private key.

    :raises OperatorError: they are missing, do not belong together, or the password is wrong.
    """
    _check_whole(store, key)
    if not store.certificates or not store.private_key:
        raise OperatorError(
            "the file holds no certificate or no private key", where=key, remedy="Put both into this file"
        )
    # ssl reads keys from files only. This file is in memory, so that no crash leaves a key on a disk.
    with os.fdopen(os.memfd_create("key store"), "w", encoding="latin-1") as file:
        file.write(store.private_key + store.certificates)
        file.flush()
        try:
            # Without a password ssl would ask for one on the terminal.
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=password or "")
        except ssl.SSLError as error:
            raise OperatorError(
                f"the key in this file cannot be used ({error.reason or error})",
                where=key,
                remedy="Check that key and certificate belong together and that ssl.key.password is right",
            ) from error


def load_trust(context: ssl.SSLContext, store: PemStore, key: str) -> None:
    """Load the trusted certificates into ``context``.

    :raises OperatorError: there is no usable certificate.
    """
    _check_whole(store, key)
    try:
        context.load_verify_locations(cadata=store.certificates)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: a block that is not ASCII
        raise OperatorError(
            "the file holds no usable certificate", where=key, remedy="Put the certificates to trust into this file"
        ) from error


def _check_whole(store: PemStore, key: str) -> None:
    """Refuse a store with an incomplete block: its file may be only half written."""
    if len(_BEGIN.findall(store.text)) != len(_BLOCK.findall(store.text)):
        raise OperatorError(
            "the file holds a PEM block without its end",
            where=key,
            remedy="Write the whole file, and then rename it into place",
        )


def _wrap(kind: str, body: str) -> str:
    headers = _HEADER.findall(body)
    base64 = "".join(_HEADER.sub("", body).split())
    lines = [base64[start : start + 64] for start in range(0, len(base64), 64)]
    folded = [*headers, "", *lines] if headers else lines
    return "\n".join([f"-----BEGIN {kind}-----", *folded, f"-----END {kind}-----", ""])
