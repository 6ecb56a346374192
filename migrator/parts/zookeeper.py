"""A real ZooKeeper server (or an ensemble) as child processes, from the jars that pyspark brings.

The drill, the rehearsal of the way back and tests use it. An `EmbeddedZooKeeper` is a context: leaving it stops the
server, and its data stays in its directory. It listens for clients on loopback only. `ZooKeeperTls` and `ZooKeeperSasl`
are lines of its files that let it authenticate clients; with TLS there is no port in clear. Source: ZooKeeper's
administrator's guide (``secureClientPort``, ``ssl.*``, ``authProvider.*``, ``sessionRequireClientSASLAuth``) and
``DigestLoginModule``.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from migrator.config.property_edits import file_of
from migrator.errors import require
from migrator.parts.java import Jvm, java_command, java_environment, pyspark_jars
from migrator.parts.processes import ChildProcess, free_port

_PROVIDERS = "org.apache.zookeeper.server.auth"
_NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """TLS on the only client port; no port has plain text.

    ``key_store`` is a PEM file with the server's private key and certificate, ``trust_store`` one with the authorities
    of the clients, and of the server itself, which is asked for its state with its own certificate. ``client_auth``
    is ``need``, ``want`` or ``none``. A client's certificate is its identity ``x509:<distinguished name>``.
    """

    key_store: Path
    trust_store: Path
    client_auth: str = "need"

    def properties(self, port: int, address: str) -> dict[str, str]:
        """Lines of the server's configuration file."""
        return {
            "secureClientPort": str(port),
            "secureClientPortAddress": address,
            "serverCnxnFactory": _NETTY,
            "authProvider.x509": f"{_PROVIDERS}.X509AuthenticationProvider",
            "ssl.keyStore.location": str(self.key_store),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self.trust_store),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": self.client_auth,
            "ssl.enabledProtocols": "TLSv1.3,TLSv1.2",  # the second is the default of Kafka's brokers
        }

    def context(self) -> ssl.SSLContext:
        """The context of a client on this machine that uses the server's own certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.trust_store)
        context.load_cert_chain(self.key_store)
        return context


@dataclass(frozen=True, slots=True)
class ZooKeeperSasl:
    """SASL DIGEST-MD5: names and passwords of clients. ``required``: other clients are not served at all."""

    users: Mapping[str, str] = field(repr=False)
    required: bool = True

    def properties(self) -> dict[str, str]:
        """Lines of the server's configuration file."""
        return {
            "authProvider.sasl": f"{_PROVIDERS}.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": str(self.required).lower(),
        }

    def jaas(self) -> str:
        """The section ``Server`` of the server's JAAS file, which ``java.security.auth.login.config`` names."""
        users = "".join(f"\n    user_{name}={quoted(password)}" for name, password in self.users.items())
        return f"Server {{\n    {_PROVIDERS}.DigestLoginModule required{users};\n}};\n"


def quoted(text: str) -> str:
    """A string of a JAAS file."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


START_SECONDS = 180.0
LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 1.0
"""How long a server may take for a four letter word."""
_NEEDED_JARS = ("zookeeper", "slf4j-api", "log4j", "netty", "metrics-core", "snappy-java", "commons-io")

_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """The options of a server.

    ``jute_maxbuffer`` in bytes bounds every request and reply, as ZooKeeper's own setting. Without ``fsync`` writes
    survive a killed process but not a killed machine. ``properties`` are added to the server's configuration file,
    ``system_properties`` to the Java process. With ``tls`` the port accepts only TLS.
    """

    jute_maxbuffer: int = 1024 * 1024 - 1
    fsync: bool = False
    tick_ms: int = 1000
    jvm: Jvm = field(default_factory=lambda: Jvm(heap="512m"))
    properties: Mapping[str, str] = field(default_factory=dict)
    system_properties: Mapping[str, str] = field(default_factory=dict)
    tls: ZooKeeperTls | None = None
    sasl: ZooKeeperSasl | None = None


class EmbeddedZooKeeper:
    """One server; leaving its context stops it. Its data stays in ``directory``, so that it can be started again.

    :param directory: data, configuration and output of the server; made when absent.
    :param members: ``server.N`` lines of an ensemble by server number, of which this one is ``server_id``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        options: ZooKeeperOptions | None = None,
        server_id: int = 0,
        members: Mapping[int, str] | None = None,
    ) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.options = options or ZooKeeperOptions()
        self.server_id = server_id
        self._members = dict(members or {})
        self._process: ChildProcess | None = None

    @property
    def hosts(self) -> str:
        """Connection string, ``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def version_directory(self) -> Path:
        """The directory of transaction logs (``log.*``) and snapshots (``snapshot.*``)."""
        return self.directory / "data" / "version-2"

    @property
    def snapshots(self) -> list[Path]:
        """Snapshot files, oldest first."""
        return sorted(self.version_directory.glob("snapshot.*"), key=_zxid)

    @property
    def transaction_logs(self) -> list[Path]:
        """Transaction log files, oldest first."""
        return sorted(self.version_directory.glob("log.*"), key=_zxid)

    @property
    def process(self) -> ChildProcess:
        require(self._process is not None, "this ZooKeeper server was not started")
        assert self._process is not None  # noqa: S101 (for the type checker; required above)
        return self._process

    def start(self) -> None:
        """Start it and wait until it serves.

        :raises OperatorError: it ends, or does not serve after `START_SECONDS`.
        """
        try:
            self.launch()
            self.wait_until_serving()
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Start the process without waiting; members of an ensemble serve only when a majority runs."""
        command = java_command(
            server_classpath(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._write_configuration()),
            jvm=self.options.jvm,
            properties={
                "log4j2.configurationFile": str(self.directory / "log4j2.properties"),
                "jute.maxbuffer": str(self.options.jute_maxbuffer),
                "zookeeper.forceSync": "yes" if self.options.fsync else "no",
                **self._write_logins(),
                **self.options.system_properties,
            },
        )
        output = self.directory / "zookeeper.log"
        self._process = ChildProcess("zookeeper", command, output=output, env=java_environment())

    def wait_until_serving(self) -> None:
        """Wait until the server reports that it serves; errors as in `start`."""
        self.process.wait_until(
            lambda: self.mode() is not None, f"ZooKeeper serves on port {self.port}", timeout_seconds=START_SECONDS
        )

    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower``; None when it does not serve."""
        tls = self.options.tls
        answer = four_letter_word(self.port, "srvr", context=tls.context() if tls else None)
        match = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
        return match.group(1) if match else None

    def stop(self) -> None:
        """SIGTERM; the data stays."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """SIGKILL; the data stays as it was on disk."""
        self.process.kill()

    def restart(self) -> None:
        """Stop it and start it again on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def _write_configuration(self) -> Path:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        properties = {
            "dataDir": str(data),
            **self._port_properties(),
            "tickTime": str(self.options.tick_ms),
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "120000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr",
            "preAllocSize": "4096",
            **(self.options.sasl.properties() if self.options.sasl else {}),
            **self.options.properties,
        }
        if self._members:
            (data / "myid").write_text(f"{self.server_id}\n")
            properties |= {"initLimit": "20", "syncLimit": "10"}
            properties |= {f"server.{number}": address for number, address in self._members.items()}
        (self.directory / "log4j2.properties").write_text(_LOG4J)
        file = self.directory / "zoo.cfg"
        file.write_text(file_of(properties))
        return file

    def _port_properties(self) -> dict[str, str]:
        if self.options.tls:
            return self.options.tls.properties(self.port, LOOPBACK)
        return {"clientPort": str(self.port), "clientPortAddress": LOOPBACK}

    def _write_logins(self) -> dict[str, str]:
        """The JAAS file, and the system property that names it."""
        if self.options.sasl is None:
            return {}
        file = self.directory / "jaas.conf"
        file.touch(mode=0o600)
        file.write_text(self.options.sasl.jaas())
        return {"java.security.auth.login.config": str(file)}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def four_letter_word(port: int, word: str, *, context: ssl.SSLContext | None = None) -> str:
    """Send a ZooKeeper server of this machine a four letter word; the answer is empty when none comes within a second.

    :param context: for a port that speaks TLS.
    """
    try:
        return answer_to_word(port, word, context=context)
    except OSError:
        return ""


def answer_to_word(port: int, word: str, *, context: ssl.SSLContext | None = None) -> str:
    """Like `four_letter_word`; empty only when the server ends the connection without an answer.

    :raises TimeoutError: the server is silent for a second.
    :raises OSError: there is no connection, or it breaks.
    """
    with ExitStack() as open_:
        connection = open_.enter_context(socket.create_connection((LOOPBACK, port), timeout=ANSWER_SECONDS))
        if context is not None:
            connection = open_.enter_context(context.wrap_socket(connection, server_hostname=LOOPBACK))
        connection.sendall(word.encode())
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
        return b"".join(chunks).decode("utf-8", "replace")


def server_classpath() -> str:
    """The jars of pyspark that a server needs."""
    jars = sorted(jar for jar in pyspark_jars().glob("*.jar") if jar.name.startswith(_NEEDED_JARS))
    return os.pathsep.join(map(str, jars))


def _zxid(file: Path) -> int:
    return int(file.suffix[1:], 16)
