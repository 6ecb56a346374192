"""The mistakes of a newcomer, and the answer to each: read it like a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from migrator.drill.cluster import CLUSTER_ID
from migrator.errors import ExitCode
from migrator.parts.processes import free_port
from migrator.values import value
from tests.people.support.world import OTHER_CLUSTER, Scene

BYTE_ORDER_MARK = "\ufeff"
FLAG = "zookeeper.metadata.migration.enable"
VOTERS = "controller.quorum.voters"


class Ends(Enum):
    """How the command ends."""

    REFUSED = ExitCode.REFUSED
    NO = ExitCode.DIFFERENT
    """It did its work, and the answer is no."""
    YES = ExitCode.OK
    RUNS_ON = None
    """A controller that says it in its log, and goes on; then it is stopped."""


@value
class Mistake:
    """``made``: makes it, and gives the words behind ``migrator``. ``{...}`` of the answer stands for the attributes of
    the scene."""

    name: str
    made: Callable[[Scene], Sequence[str]]
    says: str
    remedy: str
    ends: Ends = Ends.REFUSED


def formatting(file: str, *more: str, cluster_id: str = CLUSTER_ID) -> list[str]:
    """`migrator format`."""
    return ["format", "-c", file, "-t", cluster_id, *more]


def starting(file: str) -> list[str]:
    """`migrator controller`."""
    return ["controller", "-c", file]


FILES = (
    Mistake(
        "no such file",
        lambda scene: starting(f"{scene.directory}/contoller.properties"),
        "contoller.properties' does not exist",
        "Try 'migrator controller --help'",
    ),
    Mistake(
        "the file of a broker",
        lambda scene: starting(scene.preflight()[-1]),
        "process.roles: the key is not set, and broker.id is: this looks like the file of a broker",
        "Give the file of a controller, which sets process.roles=controller",
    ),
    Mistake(
        "an empty file",
        lambda scene: starting(scene.file("empty.properties", "")),
        "empty.properties: process.roles: the key is not set",
        "Set process.roles=controller",
    ),
    Mistake(
        "a byte order mark",
        lambda scene: starting(scene.file("bom.properties", BYTE_ORDER_MARK + scene.lines())),
        "the file begins with a byte order mark, so that Java does not know its first key, process.roles",
        "Save the file in ASCII, without a byte order mark",
    ),
    Mistake(
        "line ends of Windows, blanks and tabs, which are none",
        lambda scene: formatting(
            scene.file("crlf.properties", scene.lines().replace("=", "\t=  ").replace("\n", "  \r\n"))
        ),
        "Formatted {metadata} for node 3001",
        "",
        Ends.YES,
    ),
    Mistake(
        "a misspelt key that is needed",
        lambda scene: starting(scene.controller({VOTERS: None, "controller.quorum.voter": "3001@h:1"})),
        f"{VOTERS}: the key is not set",
        f"Did you mean {VOTERS}? The file sets controller.quorum.voter, which is unknown",
    ),
    Mistake(
        "a misspelt key that has a default",
        lambda scene: starting(scene.formatted({FLAG: None, f"{FLAG}d": "true"})),
        f"{FLAG}d: unknown key is ignored",
        f"did you mean {FLAG}?",
        Ends.RUNS_ON,
    ),
    Mistake(
        "a misspelt key of security",
        lambda scene: starting(scene.controller({"ssl.client.authentication": "required"})),
        "ssl.client.authentication: is unknown, and looks like a key of security",
        "Correct or remove the key",
    ),
    Mistake(
        "a home directory",
        lambda scene: formatting(scene.controller({"log.dirs": "~/metadata"})),
        "log.dirs: '~/metadata' is not in your home directory: only a shell replaces ~",
        "Write the whole path, from / on",
    ),
    Mistake(
        "a listener without a port",
        lambda scene: starting(scene.controller({"listeners": "CONTROLLER://127.0.0.1"})),
        "listeners: 'CONTROLLER://127.0.0.1' is not NAME://host:port",
        "Write NAME://host:port",
    ),
    Mistake(
        "IPv6 without brackets",
        lambda scene: starting(scene.controller({"listeners": "CONTROLLER://::1:9093"})),
        "listeners: 'CONTROLLER://::1:9093' is not NAME://host:port",
        "Write NAME://host:port",
    ),
    Mistake(
        "a wrong password of a TLS store",
        lambda scene: starting(
            scene.formatted(
                {
                    "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
                    "ssl.keystore.location": scene.store(password="right"),
                    "ssl.keystore.password": "wrong",
                }
            )
        ),
        "ssl.keystore.location: {directory}/store.p12 cannot be read as PKCS12: the password is wrong",
        "Set ssl.keystore.password, which has to open both the store and the key in it",
    ),
    Mistake(
        "a node that is none of the voters",
        lambda scene: starting(scene.controller({"node.id": "7"})),
        f"{VOTERS}: the key does not name this node, 7",
        "Add 7@host:port, or correct node.id",
    ),
    Mistake(
        "a chroot after each server",
        lambda scene: starting(scene.controller({"zookeeper.connect": "a:2181/kafka,b:2181/kafka"})),
        "zookeeper.connect: the chroot stands once, at the end",
        "write a:2181,b:2181/kafka",
    ),
)

DIRECTORIES = (
    Mistake(
        "formatted twice",
        lambda scene: formatting(scene.formatted()),
        f"{{metadata}}/meta.properties: the directory is already formatted, for node 3001 of cluster {CLUSTER_ID}",
        "Give --ignore-formatted to leave the directory as it is",
    ),
    Mistake(
        "formatted for another cluster",
        lambda scene: formatting(scene.formatted(cluster_id=OTHER_CLUSTER), "-g"),
        f"{{metadata}}/meta.properties: the directory is already formatted, for node 3001 of cluster {OTHER_CLUSTER}",
        "Choose another directory, or empty this one first",
    ),
    Mistake(
        "a cluster id that is none",
        lambda scene: formatting(scene.controller({FLAG: None, "zookeeper.connect": None}), cluster_id=""),
        "--cluster-id: the cluster id is empty",
        "For a migration take the brokers' own",
    ),
    Mistake(
        "another cluster id than the brokers'",
        lambda scene: formatting(scene.controller(), cluster_id=OTHER_CLUSTER),
        f"{OTHER_CLUSTER} was typed, and /cluster/id of ZooKeeper at {{world.hosts}} is {CLUSTER_ID}",
        "Nothing was formatted. Leave -t away, or correct zookeeper.connect",
    ),
    Mistake(
        "formatted without the chroot",
        lambda scene: formatting(scene.controller({"zookeeper.connect": scene.world.server})),
        "no Kafka cluster is here: /cluster/id is missing",
        "Did you mean /{world.chroot}? A Kafka cluster is there: write {world.hosts}",
    ),
    Mistake(
        "a file in the place of the directory",
        lambda scene: formatting(scene.controller({"log.dirs": scene.file("metadata", "")})),
        "{metadata}: cannot create the directory: File exists",
        "Look at it with 'ls -l', then move it away or name another directory",
    ),
    Mistake(
        "a file above the directory",
        lambda scene: formatting(scene.controller({"log.dirs": scene.file("metadata", "") + "/kraft"})),
        "migrator: {metadata}: cannot create the directory: File exists",
        "Look at it with 'ls -l'",
    ),
    Mistake(
        "a directory that the system does not let anybody make",
        lambda scene: formatting(scene.controller({"log.dirs": "/proc/kafka"})),
        "/proc/kafka: cannot create the directory: No such file or directory",
        "Check this path",
    ),
    Mistake(
        "not formatted",
        lambda scene: starting(scene.controller()),
        "{metadata}: the metadata directory is not formatted",
        "Run: migrator format -c FILE -t CLUSTER_ID",
    ),
    Mistake(
        "the directory of another node",
        lambda scene: starting(scene.formatted({"node.id": "7", VOTERS: f"7@127.0.0.1:{free_port()}"})),
        f"the directory belongs to node 3001 of cluster {CLUSTER_ID}",
        "Correct node.id or metadata.log.dir (log.dirs). The property file says node 7",
    ),
    Mistake(
        "started twice",
        lambda scene: starting(scene.running),
        "another process uses this directory",
        "Stop this process ('fuser",
    ),
    Mistake(
        "formatted while it runs",
        lambda scene: formatting(scene.running),
        "another process uses this directory",
        "Stop this process ('fuser",
    ),
)

ADDRESSES = (
    Mistake(
        "a port that is in use",
        lambda scene: starting(scene.formatted({"listeners": f"CONTROLLER://127.0.0.1:{scene.port_in_use()}"})),
        "listeners: CONTROLLER: this process cannot listen on 127.0.0.1:",
        "another program uses this port. Stop this program ('ss -ltnp' shows which one it is), or choose another port",
    ),
    Mistake(
        "the address of another machine",
        lambda scene: starting(scene.formatted({"listeners": "CONTROLLER://192.0.2.1:9093"})),
        "cannot listen on 192.0.2.1:9093: this machine does not have this address",
        "Write one that it has ('ip address' shows them)",
    ),
    Mistake(
        "a name that nobody knows",
        lambda scene: starting(scene.formatted({"listeners": "CONTROLLER://no-such-host.invalid:9093"})),
        "cannot listen on no-such-host.invalid:9093: the name is not known",
        "Correct the name, or make it known to this machine (DNS, /etc/hosts)",
    ),
)

ZOOKEEPER = (
    Mistake(
        "ZooKeeper is down",
        lambda scene: starting(scene.formatted({"zookeeper.connect": f"127.0.0.1:{free_port()}"})),
        "has been out of reach for 2 s: no server answers: 127.0.0.1:",
        "this controller tries again all the time",
        Ends.RUNS_ON,
    ),
    Mistake(
        "ZooKeeper's name is unknown",
        lambda scene: starting(scene.formatted({"zookeeper.connect": "no-such-host.invalid:2181"})),
        "no server answers: no-such-host.invalid: the name is not known",
        "this controller tries again all the time",
        Ends.RUNS_ON,
    ),
    Mistake(
        "no chroot",
        lambda scene: starting(scene.formatted({"zookeeper.connect": scene.world.server})),
        "{world.server}: no Kafka cluster is here: /cluster/id is missing",
        "Did you mean /{world.chroot}? A Kafka cluster is there: write {world.hosts}",
        Ends.RUNS_ON,
    ),
    Mistake(
        "the quorum of another cluster",
        lambda scene: starting(scene.formatted(cluster_id=OTHER_CLUSTER)),
        f"/cluster/id is {CLUSTER_ID}, but this quorum was formatted for cluster {OTHER_CLUSTER}",
        "Correct zookeeper.connect if it names another cluster than yours",
        Ends.RUNS_ON,
    ),
)

PREFLIGHT = (
    Mistake(
        "preflight, without its chroot",
        lambda scene: scene.preflight({"zookeeper.connect": scene.world.server}),
        "M007 No Kafka cluster in this ZooKeeper",
        "Did you mean /{world.chroot}?",
        Ends.NO,
    ),
    Mistake(
        "preflight, while ZooKeeper is down",
        lambda scene: scene.preflight(
            {"zookeeper.connect": f"127.0.0.1:{free_port()}", "zookeeper.connection.timeout.ms": "400"}
        ),
        "COULD NOT TELL 127.0.0.1:",
        "no ZooKeeper server answered within 400 ms: 127.0.0.1:",
        Ends.NO,
    ),
    Mistake(
        "the flag is missing on one broker",
        lambda scene: scene.preflight(of_broker={FLAG: None}),
        f"broker-2.properties: {FLAG}: broker 2: Kafka refuses to start with this file",
        f"set {FLAG}=true and {VOTERS}",
        Ends.NO,
    ),
    Mistake(
        "the flag is misspelt on one broker",
        lambda scene: scene.preflight(of_broker={FLAG: None, f"{FLAG}d": "true"}),
        f"and lacks {FLAG}=true (it sets {FLAG}d, which Kafka does not know)",
        f"set {FLAG}=true",
        Ends.NO,
    ),
    Mistake(
        "inter.broker.protocol.version is too low on one broker",
        lambda scene: scene.preflight(of_broker={"inter.broker.protocol.version": "3.3"}),
        "broker 2: it has 3.3: a migration needs 3.6-IV1",
        "raise inter.broker.protocol.version to 3.6 or later in a roll of its own",
        Ends.NO,
    ),
    Mistake(
        "a controller with the id of a broker",
        lambda scene: scene.preflight({"node.id": "2", VOTERS: "2@127.0.0.1:19093"}),
        "M206 Node ids clash",
        "Give the controllers ids that no broker has or had, 3001 and so on",
        Ends.NO,
    ),
    Mistake(
        "two controllers with one id",
        lambda scene: ["preflight", "-c", scene.controller(name="one"), "-c", scene.controller(name="two")],
        "node.id: controller 3001: {directory}/one.properties has 3001, too",
        "Give each controller its own node.id",
        Ends.NO,
    ),
    Mistake(
        "a controller's file given as a broker's",
        lambda scene: ["preflight", "-c", scene.formatted(), "--brokers", scene.controller(name="other")],
        "other.properties: it is a controller's file, given as a broker's",
        "Give each controller's file a -c of its own",
    ),
    Mistake(
        "a broker's file given as a controller's",
        lambda scene: ["preflight", "-c", scene.preflight()[-1], "--zookeeper", scene.world.hosts],
        "broker-3.properties: it is a broker's file, given as a controller's",
        "Give brokers' files after --brokers",
        Ends.NO,
    ),
    Mistake(
        "no file of a broker",
        lambda scene: ["preflight", "-c", scene.formatted()],
        "no broker's file was given, so the settings of brokers were not checked",
        "give the files with --brokers",
        Ends.YES,
    ),
)

COMMANDS = (
    Mistake(
        "status of a controller that is down",
        lambda scene: ["status", "-c", scene.formatted()],
        "{metadata}: there is no operator socket",
        "Start the controller, run this as its user, or name a server with --server",
    ),
    Mistake(
        "status of a broker",
        lambda scene: ["status", "-c", scene.preflight()[-1]],
        "this looks like the file of a broker",
        "Give the file of a controller",
    ),
    Mistake(
        "status of nobody",
        lambda _: ["status"],
        "no controller is named",
        "Give -c FILE or --server HOST:PORT",
    ),
    Mistake(
        "force when nothing waits",
        lambda scene: ["force", "reclaim", "-c", scene.running, "--reason", "try", "--yes"],
        "the state of the migration is 'waiting for brokers', and this order is for 'refused' only",
        "'migrator status' shows what the migration waits for",
    ),
    Mistake(
        "resume when nothing is paused",
        lambda scene: ["resume", "-c", scene.running],
        "resume: the migration is not paused",
        "'migrator status' shows what the migration waits for",
    ),
    Mistake(
        "rollback while a controller runs",
        lambda scene: ["rollback", "-c", scene.running, "--yes"],
        "controller 3001 still runs",
        "Stop every controller of the quorum with SIGTERM, the leader last; then repeat the command",
    ),
    Mistake(
        "too early for the end",
        lambda scene: ["gates", "finish", "-c", scene.running],
        "NO state: the migration is in MigrationIneligible",
        "Only a migration in DualWrite can be finished",
        Ends.NO,
    ),
    Mistake(
        "the way back closed too early",
        lambda scene: ["close-way-back", "-c", scene.running, "--reason", "try"],
        "close-way-back: the migration is in MigrationIneligible: no way back has to be closed",
        "Only after the end of the migration do the controllers refuse anything. Nothing was changed",
    ),
    Mistake(
        "a goal that is missing",
        lambda scene: ["gates", "-c", scene.running],
        "Missing argument '{{finish|rollback|reopen}}'",
        "Choose from: finish, rollback, reopen",
    ),
    Mistake(
        "a misspelt command",
        lambda scene: ["stauts", "-c", scene.running],
        "No such command 'stauts'",
        "Did you mean 'status'?",
    ),
    Mistake(
        "a misspelt option",
        lambda scene: ["status", "-c", scene.running, "--wach"],
        "No such option '--wach'",
        "Did you mean '--watch'?",
    ),
    Mistake(
        "a handover too early",
        lambda scene: ["handover", "check", "-c", scene.running],
        "controller 3001: refuse: the migration is not finished",
        "Finish the migration first",
        Ends.NO,
    ),
    Mistake(
        "verify of nothing",
        lambda _: ["verify"],
        "no ZooKeeper is named",
        "Give --zookeeper, or a property file with -c",
    ),
)


def without_java(scene: Scene, *words: str) -> Sequence[str]:
    """The same command, on such a machine."""
    scene.nothing_on_the_path()
    return words


def without_network(scene: Scene, *words: str) -> Sequence[str]:
    """The same command, on such a machine."""
    scene.no_network()
    return words


NO_JAVA = "Java 17 or newer is needed and none was found"
INSTALL_JAVA = (
    "Install a Java runtime, for example 'apt-get install openjdk-17-jre-headless', or point JAVA_HOME at one"
)
MACHINES = (
    Mistake(
        "verify without Java",
        lambda scene: without_java(scene, "verify", "-c", scene.running),
        NO_JAVA,
        INSTALL_JAVA,
    ),
    Mistake(
        "rehearse without Java",
        lambda scene: without_java(scene, "rehearse", "-c", scene.running),
        NO_JAVA,
        INSTALL_JAVA,
    ),
    Mistake(
        "a drill without Java",
        lambda scene: without_java(scene, "drill", "--kafka", "none", "--dir", str(scene.directory)),
        NO_JAVA,
        INSTALL_JAVA,
    ),
    Mistake(
        "a drill without a network",
        lambda scene: without_network(scene, "drill", "--kafka", "3.9.1", "--dir", str(scene.directory)),
        "Apache Kafka 3.9.1 is not in the cache and could not be fetched from Maven Central",
        "Connect this machine to the network",
    ),
)
"""Python that is too old, and a package index that is not reachable: tests/people/test_make.py."""

MISTAKES = (*FILES, *DIRECTORIES, *ADDRESSES, *ZOOKEEPER, *PREFLIGHT, *COMMANDS, *MACHINES)
