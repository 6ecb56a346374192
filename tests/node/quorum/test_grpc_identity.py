"""A controller starts gRPC with its own certificate only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from migrator.config.load import settings_from
from migrator.errors import OperatorError
from migrator.node.quorum.transports import grpc_tls
from migrator.parts.certificates import Authority
from migrator.rpc.tls import TlsFiles
from tests.config.test_settings import MINIMAL
from tests.rpc.support.identities import properties_of

KEYS = {"migrator.grpc.listener": "127.0.0.1:1", "migrator.grpc.voter.principals": "3000@User:CN=right"}


def tls(directory: Path, name: str) -> TlsFiles:
    files = TlsFiles(*Authority("ca").files(directory / "tls", name))
    return grpc_tls(settings_from(MINIMAL | KEYS | properties_of(files), "f")[0])


def test_its_own_certificate_is_taken_and_no_other_ever_after(tmp_path: Path) -> None:
    files = tls(tmp_path, "right")
    assert files.own().principal == "User:CN=right"
    Authority("ca").files(tmp_path / "tls", "wrong")
    with pytest.raises(OperatorError, match=re.escape("is of User:CN=wrong")):
        files.read()


def test_a_certificate_that_is_not_its_own_is_refused_with_the_entry_to_add(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=re.escape("Add 3000@User:CN=wrong")) as refused:
        tls(tmp_path, "wrong")
    assert refused.value.where == "f: migrator.grpc.voter.principals"
