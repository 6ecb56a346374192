"""Kafka's own clients in one JVM, driven from here: ``org.apache.kafka.clients.admin.Admin`` and nothing of ours.

Starting a Java tool takes seconds, and logging in takes milliseconds; so all logins are tried from one process. Py4j,
which pyspark brings, calls its methods.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from migrator.parts.java import Jvm, java_command, pyspark_jars
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import ChildProcess
from migrator.values import value
from tests.patience import PATIENCE_SECONDS

_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""A client of 3.9.1 reads tokens from there only (CVE-2025-27817)."""


@value
class Answer:
    """An answer to a client: its rights in the cluster, which show its principal, or an error."""

    operations: frozenset[str] = frozenset()
    error: str = ""
    """The simple name of the exception's class; empty when it got in."""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.error}: {self.message}" if self.error else f"may {', '.join(sorted(self.operations))}"


class StockClients:
    """The JVM; leaving its context ends it.

    Once a process has had a Spark session, Spark's own hook handles the exceptions of every Java gateway: it asks
    Spark's JVM about objects that are in ours. So the hook is away as long as this lasts.

    :param directory: for its output.
    :param tokens: a folder whose files clients may read tokens of OAUTHBEARER from.
    """

    def __init__(self, kafka: StockKafka, directory: Path, *, tokens: Path | None = None) -> None:
        (py4j,) = pyspark_jars().glob("py4j-*.jar")
        log4j = directory / "log4j.properties"
        log4j.write_text("log4j.rootLogger=OFF\n")
        allowed = "" if tokens is None else ",".join(file.as_uri() for file in sorted(tokens.iterdir()))
        self._command = java_command(
            f"{kafka.classpath}{os.pathsep}{py4j}", "py4j.GatewayServer", "--enable-auth", "0", jvm=Jvm(),
            properties={_ALLOWED: allowed, "log4j.configuration": log4j.as_uri()},
        )  # fmt: skip
        self._output = directory / "clients.log"
        self._process: ChildProcess | None = None
        self._gateway: Any = None
        self._hook: Any = None

    def __enter__(self) -> Self:
        self._process = ChildProcess("stock clients", self._command, output=self._output)
        self._process.wait_for_output(r"(?m)^\d+\n\S+\n", timeout_seconds=PATIENCE_SECONDS)
        found = re.match(r"(\d+)\s+(\S+)\s", self._process.output_text())
        assert found is not None
        parameters = GatewayParameters(port=int(found[1]), auth_token=found[2], auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._hook = java_gateway.get_return_value
        java_gateway.get_return_value = protocol.get_return_value
        return self

    def __exit__(self, *_: object) -> None:
        if self._gateway is not None:
            java_gateway.get_return_value = self._hook
            self._gateway.shutdown()  # or each object that is collected later would connect to the JVM that has ended
        if self._process is not None:
            self._process.kill()

    @contextlib.contextmanager
    def admin(self, properties: Mapping[str, str]) -> Iterator[StockAdmin]:
        """An Admin, which is closed in the end."""
        jvm = self._gateway.jvm
        given = jvm.java.util.Properties()
        for key, text in properties.items():
            given.setProperty(key, text)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(given)
        try:
            yield StockAdmin(jvm, admin)
        finally:
            admin.close(jvm.java.time.Duration.ZERO)

    def answer(self, properties: Mapping[str, str]) -> Answer:
        """The answer to a new client that asks once."""
        try:
            with self.admin(properties) as admin:
                return admin.ask()
        except Py4JJavaError as error:
            return _refusal(error.java_exception)


class StockAdmin:
    """One Admin of Kafka's, and its connections."""

    def __init__(self, jvm: Any, admin: Any) -> None:
        self._jvm = jvm
        self._admin = admin

    def ask(self) -> Answer:
        """The cluster, and the caller's rights in it."""
        options = self._jvm.org.apache.kafka.clients.admin.DescribeClusterOptions()
        try:
            found = self._admin.describeCluster(options.includeAuthorizedOperations(True)).authorizedOperations().get()
        except Py4JJavaError as error:
            return _refusal(error.java_exception)
        return Answer(frozenset(str(operation) for operation in found or ()))

    def metric(self, name: str) -> float:
        """The sum of a metric, e.g. ``successful-reauthentication-total``."""
        metrics = self._admin.metrics()
        return sum(
            float(entry.getValue().metricValue())
            for entry in metrics.entrySet()
            if entry.getKey().name() == name and entry.getKey().group() == "admin-client-metrics"
        )

    def set_password(self, user: str, password: str) -> None:
        """Create or change a user of SCRAM-SHA-256."""
        admin = self._jvm.org.apache.kafka.clients.admin
        info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 4096)
        changes = self._jvm.java.util.ArrayList()
        changes.add(admin.UserScramCredentialUpsertion(user, info, password))
        self._admin.alterUserScramCredentials(changes).all().get()

    def create_token(self) -> tuple[str, str]:
        """A delegation token: its id, and its HMAC in base 64."""
        token = self._admin.createDelegationToken().delegationToken().get()
        return str(token.tokenInfo().tokenId()), str(token.hmacAsBase64String())


def _refusal(exception: Any) -> Answer:
    """The error at the bottom that is Kafka's own, or the first one."""
    named = [exception]
    while named[-1].getCause() is not None:
        named.append(named[-1].getCause())
    kafkas = [each for each in named if each.getClass().getName().startswith("org.apache.kafka.common")]
    chosen = (kafkas or named)[-1 if kafkas else 0]
    return Answer(error=str(chosen.getClass().getSimpleName()), message=str(chosen.getMessage() or ""))
