"""M3xx: authorization, secrets, Java classes, and permissions in ZooKeeper. Pure.

Each function takes the evidence and yields a case for each fault; `CHECKS` at the end gives it number, severity, title
and remedy. Secrets are compared, but no finding shows one.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from migrator.config.checks import ACL_AUTHORIZER, DEFAULT_PRINCIPAL_BUILDER, STANDARD_AUTHORIZER
from migrator.config.key_uses import concerns_this_program_only
from migrator.config.keys import AUTHORIZER, TOKEN_SECRET
from migrator.config.open_doors import ANONYMOUS
from migrator.config.reading import super_users_of
from migrator.config.super_users import KEY as SUPER_USERS
from migrator.config.super_users import unmatchable_entries_of
from migrator.migration.machine.readiness import Severity
from migrator.preflight.census import sample_of
from migrator.preflight.check import Concerns, Found, PreflightCheck, of_zookeeper
from migrator.preflight.checks.brokers import differs
from migrator.preflight.checks.controllers import JAVA_CLASS_KEYS
from migrator.preflight.evidence import BrokerFile, ControllerFile, Evidence, PropertyFile, ZooKeeperFacts
from migrator.zookeeper.znodes import paths

ACL_AUTHORIZERS = (ACL_AUTHORIZER, "kafka.security.auth.SimpleAclAuthorizer")
POLICIES = ("create.topic.policy.class.name", "alter.config.policy.class.name")
BUILDER = "principal.builder.class"
SECRET = "password.encoder.secret"  # noqa: S105 - a key
_WORLD = "world:anyone ALL"
STOCK_WAY = "let Kafka's own controllers migrate the cluster (docs/stock-controllers.md)"
"""The way for a cluster that needs a feature that only Java has; the page says which way fits which case."""


def java_classes(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for key, what, remedy in controller.problems:
            if key in JAVA_CLASS_KEYS:
                yield Found(controller.file.at(key), what, f"{remedy}. Or {STOCK_WAY}", (controller.who,))


def refused_keys(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for key, what, remedy in controller.problems:
            if concerns_this_program_only(key):
                yield Found(controller.file.at(key), what, f"{remedy}. Or {STOCK_WAY}", (controller.who,))


def policies_of_brokers(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        for key in POLICIES:
            for controller in evidence.controllers:
                if key in controller.file.hidden or not broker.file.sets(key):
                    continue
                if controller.file.get(key) != broker.file.get(key):
                    yield Found(
                        broker.file.at(key),
                        f"brokers have the policy {broker.file.get(key)}, controllers not: controllers apply policies, "
                        "brokers no longer do",
                        hosts=(broker.who, controller.who),
                    )


def principal_builders(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        builder = broker.file.get(BUILDER)
        if builder not in ("", DEFAULT_PRINCIPAL_BUILDER):
            yield Found(
                broker.file.at(BUILDER),
                f"it builds principals with {builder}, and forwards them to the controller in that form",
                hosts=(broker.who,),
            )


def missing_authorizer(evidence: Evidence) -> Iterator[Found]:
    """The controllers authorize requests that change the cluster, as soon as they are the cluster's controllers
    (KAFKA-15098)."""
    reasons = [
        f"{broker.who} authorizes with {broker.file.get(AUTHORIZER)} ({broker.path})"
        for broker in evidence.brokers
        if broker.file.sets(AUTHORIZER)
    ]
    if evidence.zookeeper is not None and evidence.zookeeper.acl_resources:
        reasons.append(f"ZooKeeper holds ACLs of {evidence.zookeeper.acl_resources:,} resources")
    for controller in evidence.controllers:
        if reasons and not controller.file.sets(AUTHORIZER):
            what = f"it authorizes nobody, but {reasons[0]}"
            yield Found(controller.file.at(AUTHORIZER), what, hosts=(controller.who,))


def foreign_authorizer(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        name = broker.file.get(AUTHORIZER)
        if name and name not in (*ACL_AUTHORIZERS, STANDARD_AUTHORIZER):
            yield Found(
                broker.file.at(AUTHORIZER),
                f"it authorizes with {name}, whose rules are not in ZooKeeper",
                hosts=(broker.who,),
            )


def zookeeper_authorizer(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        if broker.file.get(AUTHORIZER) in ACL_AUTHORIZERS:
            what = "it has an authorizer that needs ZooKeeper"
            yield Found(broker.file.at(AUTHORIZER), what, hosts=(broker.who,))


def differing_super_users(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        if not controller.file.sets(AUTHORIZER):
            continue
        for broker in evidence.brokers:
            missing = _super_users(broker.file) - _super_users(controller.file)
            if missing:
                yield Found(
                    controller.file.at(SUPER_USERS),
                    f"controllers lack {', '.join(sorted(missing))}, a super user of brokers",
                    hosts=(controller.who, broker.who),
                )
            key = "allow.everyone.if.no.acl.found"
            if controller.file.is_on(key) != broker.file.is_on(key):
                yield differs(key, controller, controller.file.get(key), broker, broker.file.get(key))


def anonymous_brokers(evidence: Evidence) -> Iterator[Found]:
    """Find PLAINTEXT listeners on which brokers are anonymous, without the right CLUSTER_ACTION."""
    for controller in evidence.controllers:
        listeners = controller.settings.controller_listeners
        plain = listeners and controller.protocols.get(listeners[0]) == "PLAINTEXT"
        allowed = controller.file.is_on("allow.everyone.if.no.acl.found") or ANONYMOUS in _super_users(controller.file)
        if controller.file.sets(AUTHORIZER) and plain and not allowed:
            yield Found(
                controller.file.at(SUPER_USERS),
                f"brokers come as {ANONYMOUS} on the PLAINTEXT listener {listeners[0]}, which is no super user",
                hosts=(controller.who,),
            )


def voters_without_right(evidence: Evidence) -> Iterator[Found]:
    """Each controller as every other controller sees it (`migrator.node.access.own_principal`)."""
    for one in evidence.controllers:
        if one.authentication is None or not one.file.sets(AUTHORIZER) or len(one.voters) == 1:
            continue
        for other in evidence.controllers:
            if other.shown is None:
                continue
            try:
                principal = one.authentication.principal_of(other.shown)
            except ValueError as error:
                what = f"{other.who} gets no name there: {error}"
                yield Found(one.file.at("ssl.principal.mapping.rules"), what, hosts=(one.who,))
                continue
            if principal is not None and principal not in one.settings.super_user_names:
                what = f"it takes {other.who} for {principal}, which is no super user there"
                yield Found(one.file.at(SUPER_USERS), what, f"Add {principal}", (one.who,))


def doors_left_open(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for key, what, remedy in controller.open_doors:
            yield Found(controller.file.at(key), what, remedy, (controller.who,))


def super_users_that_are_nobody(evidence: Evidence) -> Iterator[Found]:
    """Find entries of super.users that match nobody. With a principal builder of its own, any type may match."""
    for it in evidence.nodes:
        if it in evidence.brokers and it.file.get(BUILDER) not in ("", DEFAULT_PRINCIPAL_BUILDER):
            continue
        mapped = it.file.get("ssl.principal.mapping.rules")
        for what, remedy in unmatchable_entries_of(it.file.get(SUPER_USERS), mapped=mapped):
            yield Found(it.file.at(SUPER_USERS), what, remedy, (it.who,))


def missing_encoder_secret(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None or not evidence.zookeeper.encrypted.count:
        return
    sample = evidence.zookeeper.encrypted
    for controller in evidence.controllers:
        if not controller.file.sets(SECRET):
            yield Found(
                controller.file.at(SECRET),
                f"the key is not set, but ZooKeeper holds {sample.count:,} encrypted passwords: {sample}",
                hosts=(controller.who,),
            )


@of_zookeeper
def undecodable_passwords(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    for fault in zookeeper.undecodable_passwords:
        yield Found(fault.where, fault.what, fault.remedy)


def differing_secrets(evidence: Evidence) -> Iterator[Found]:
    """Find files with different secrets. No finding shows a secret."""
    for key in (SECRET, TOKEN_SECRET):
        for controller in evidence.controllers:
            for other in evidence.nodes:
                if _differ(controller.file, other.file, key):
                    what = f"{key} is not the same in their files"
                    for it in (controller, other):
                        yield Found(it.file.at(key), what, hosts=(it.who,))


def missing_token_secret(evidence: Evidence) -> Iterator[Found]:
    reasons = [f"{broker.who} has one ({broker.path})" for broker in evidence.brokers if broker.file.sets(TOKEN_SECRET)]
    if evidence.zookeeper is not None and evidence.zookeeper.tokens.count:
        count = evidence.zookeeper.tokens.count
        reasons.insert(0, f"ZooKeeper holds {count:,} delegation tokens below {paths.TOKENS}")
    for controller in evidence.controllers:
        if reasons and not controller.file.sets(TOKEN_SECRET):
            what = f"the key is not set, but {reasons[0]}"
            yield Found(controller.file.at(TOKEN_SECRET), what, hosts=(controller.who,))


def unreadable_security(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for trouble in controller.unreadable:
            yield Found(trouble.where, trouble.what, f"{trouble.remedy}. Or {STOCK_WAY}", (controller.who,))


def unusable_files_of_metrics(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for trouble in controller.unusable:
            yield Found(trouble.where, trouble.what, trouble.remedy, (controller.who,))


def hidden_values(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        yield from _hidden(controller, controller.file.hidden.keys() - controller.file.not_examined)


def values_not_examined(evidence: Evidence) -> Iterator[Found]:
    for it in evidence.nodes:
        yield from _hidden(it, it.file.not_examined)


@of_zookeeper
def may_not_read(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    sample = zookeeper.unreadable
    if sample.count:
        yield Found(
            sample.examples[0], f"{sample.count:,} znodes may not be read by us ({_identity(zookeeper)}): {sample}"
        )


@of_zookeeper
def may_not_write(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    """One case for each kind of write that is refused: without the brokers' identity, everything is refused
    everywhere."""
    by_deed: dict[tuple[str, str], list[str]] = {}
    for trouble in zookeeper.permissions.refused:
        by_deed.setdefault((trouble.what, trouble.remedy), []).append(trouble.where)
    for (what, remedy), found in by_deed.items():
        owners = zookeeper.permissions.owners.get(found[0])
        known = f"; its access control list is {owners}" if owners else ""
        others = f"; the same with {len(found) - 1:,} more that were tried: {sample_of(found[1:])}" if found[1:] else ""
        yield Found(found[0], f"{what} ({_identity(zookeeper)}){known}{others}", remedy)


def open_to_the_world(evidence: Evidence) -> Iterator[Found]:
    """Find controllers that would make open znodes although existing znodes are protected."""
    if evidence.zookeeper is None:
        return
    owners = evidence.zookeeper.permissions.owners
    closed = [path for path, text in owners.items() if path.startswith(paths.SENSITIVE_PREFIXES) and _WORLD not in text]
    for controller in evidence.controllers:
        if closed and not controller.settings.zookeeper_set_acl:
            yield Found(
                controller.file.at("zookeeper.set.acl"),
                f"the key is false, but {closed[0]} is protected ({owners[closed[0]]}); new znodes would not be",
                hosts=(controller.who,),
            )


def _hidden(of: ControllerFile | BrokerFile, keys: AbstractSet[str]) -> Iterator[Found]:
    for trouble in (trouble for key, trouble in of.file.hidden.items() if key in keys):
        yield Found(trouble.where, trouble.what, trouble.remedy, (of.who,))


def _differ(one: PropertyFile, other: PropertyFile, key: str) -> bool:
    if key in one.hidden or key in other.hidden:
        return False
    return one.sets(key) and other.sets(key) and one.get(key) != other.get(key)


def _super_users(file: PropertyFile) -> frozenset[str]:
    return super_users_of(file.get(SUPER_USERS))


def _identity(zookeeper: ZooKeeperFacts) -> str:
    """Our identity in ZooKeeper's words; servers before 3.7 do not tell it."""
    return f"as {', '.join(zookeeper.permissions.identity) or 'nobody that ZooKeeper names'}"


CHECKS = (
    PreflightCheck(
        "M301", Severity.BLOCKER, "Java classes on a controller", java_classes,
        f"Remove the key for the migration, or {STOCK_WAY}", Concerns.OURS,
    ),
    PreflightCheck(
        "M302", Severity.WARNING, "Policies that controllers do not have", policies_of_brokers,
        "This program cannot run the Java class, so nothing enforces the policy until Kafka's controllers take over. "
            f"If that may not be, {STOCK_WAY}, with the key, and with the class on their class path",
    ),
    PreflightCheck(
        "M303", Severity.BLOCKER, "A custom principal builder", principal_builders,
        f"Only principals of Kafka's own builder are understood: remove the key, or {STOCK_WAY}",
        Concerns.OURS,
    ),
    PreflightCheck(
        "M304", Severity.BLOCKER, "Controllers without an authorizer", missing_authorizer,
        f"Set authorizer.class.name={STANDARD_AUTHORIZER} and the super.users of the brokers (KAFKA-15098)",
    ),
    PreflightCheck(
        "M305", Severity.WARNING, "An authorizer that is not Kafka's", foreign_authorizer,
        "Find out whether that authorizer works without ZooKeeper. Controllers have to decide as it does: write its "
            f"rules as ACLs for StandardAuthorizer, or {STOCK_WAY}, with the class on their class path",
    ),
    PreflightCheck(
        "M306", Severity.WARNING, "An authorizer that needs ZooKeeper", zookeeper_authorizer,
        f"Set authorizer.class.name={STANDARD_AUTHORIZER} in the file with which the broker starts in KRaft mode",
    ),
    PreflightCheck(
        "M307", Severity.WARNING, "Super users differ", differing_super_users,
        "Copy super.users and allow.everyone.if.no.acl.found from the brokers",
    ),
    PreflightCheck(
        "M308", Severity.BLOCKER, "Brokers that controllers would refuse", anonymous_brokers,
        "Add User:ANONYMOUS to super.users, or protect the controller listener and name the brokers' principal there",
    ),
    PreflightCheck(
        "M309", Severity.BLOCKER, "No password.encoder.secret", missing_encoder_secret,
        "Set password.encoder.secret (and its algorithms) as on the brokers; a stock controller would copy the "
        "encrypted text as the password (KAFKA-14801)",
    ),
    PreflightCheck(
        "M310", Severity.BLOCKER, "Passwords that do not decrypt", undecodable_passwords,
        "Check password.encoder.secret, or set the configuration again with kafka-configs",
    ),
    PreflightCheck(
        "M311", Severity.BLOCKER, "Secrets differ", differing_secrets,
        "Give all brokers and controllers the same secret",
    ),
    PreflightCheck(
        "M312", Severity.BLOCKER, "No delegation.token.secret.key", missing_token_secret,
        "Set delegation.token.secret.key as on the brokers: without the same key, tokens cannot be verified",
    ),
    PreflightCheck(
        "M313", Severity.BLOCKER, "Key stores and login modules that only Java reads", unreadable_security,
        f"Convert stores to PKCS12 or PEM, and write login modules into the property file, or {STOCK_WAY}",
        Concerns.OURS, of_host=True,
    ),
    PreflightCheck(
        "M314", Severity.BLOCKER, "Values of a controller that are stored outside of its file", hidden_values,
        "Write the value into the file, or use one of Kafka's own providers", Concerns.OURS, of_host=True,
    ),
    PreflightCheck(
        "M315", Severity.WARNING, "Values that preflight could not look up", hidden_values,
        "Run preflight where the value can be read", Concerns.STOCK, of_host=True,
    ),
    PreflightCheck(
        "M316", Severity.WARNING, "Values that preflight does not look up", values_not_examined,
        "See on that host that the value is right: checks of this key had nothing to compare. Preflight looks up "
            "placeholders only for the first file of -c; the other files may be copies from other hosts",
        of_not_examined=True,
    ),
    PreflightCheck(
        "M317", Severity.BLOCKER, "Znodes that we may not read", may_not_read,
        "Give the controllers the ZooKeeper identity of the brokers",
    ),
    PreflightCheck(
        "M318", Severity.BLOCKER, "Znodes that we may not write", may_not_write,
        "Give the controllers the ZooKeeper identity of the brokers, or correct the access control lists",
    ),
    PreflightCheck(
        "M319", Severity.WARNING, "Protected znodes, but zookeeper.set.acl is false", open_to_the_world,
        "Set zookeeper.set.acl=true on the controllers as on the brokers",
    ),
    PreflightCheck(
        "M320", Severity.BLOCKER, "Keys of security that this program does not obey", refused_keys,
        f"Remove the key, or {STOCK_WAY}", Concerns.OURS,
    ),
    PreflightCheck(
        "M321", Severity.BLOCKER, "Controllers that are no super users of one another", voters_without_right,
        "Name the principals of all controllers in super.users of each: access control entries are known only once a "
        "leader is elected, so after a stop of all controllers none could be elected",
    ),
    PreflightCheck(
        "M322", Severity.WARNING, "Doors that are left open", doors_left_open,
        "Close them before the migration, or know why not: docs/security.md",
    ),
    PreflightCheck(
        "M323", Severity.WARNING, "Super users who are nobody", super_users_that_are_nobody,
        "Write User:name, exactly as the name is known at a login, with ';' between names",
    ),
    PreflightCheck(
        "M324", Severity.BLOCKER, "Files of the metrics endpoint that cannot be used", unusable_files_of_metrics,
        "Correct the file, or the key that names it: the controller does not start with it", Concerns.OURS,
        of_host=True,
    ),
)  # fmt: skip
