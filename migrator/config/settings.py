"""The settings of one controller: every key that it acts upon, typed.

An attribute's name is the key with dots turned into underscores, its value and unit Kafka's. Values that follow from
several keys are properties below the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from migrator.config.endpoints import (
    Listener,
    VoterAddress,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from migrator.config.principals import parse_principals, parse_voter_principals
from migrator.config.reading import listener_names, super_users_of
from migrator.config.types import Secret, entries_of, split_list, trimmed

HIDDEN_ATTRIBUTES = ("source", "explicit")
"""Attributes without a key."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    source: str
    """The file from which the settings were read, for messages."""
    explicit: Mapping[str, str] = field(repr=False)
    """Every key that the file sets, as text with placeholders resolved; it has secrets, so it must not be printed."""

    # Who this node is, and its directories
    process_roles: tuple[str, ...]
    node_id: int
    log_dir: str
    log_dirs: str | None
    metadata_log_dir: str | None

    # The quorum
    controller_quorum_voters: tuple[str, ...]
    controller_quorum_bootstrap_servers: tuple[str, ...]
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int

    # The metadata log
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_idle_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int

    # Listeners
    listeners: str
    advertised_listeners: str | None
    controller_listener_names: str | None
    control_plane_listener_name: str | None
    inter_broker_listener_name: str | None
    security_inter_broker_protocol: str
    listener_security_protocol_map: str
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_connection_creation_rate: int
    queued_max_request_bytes: int
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_mechanism_controller_protocol: str
    sasl_mechanism_inter_broker_protocol: str
    ssl_client_auth: str
    ssl_principal_mapping_rules: str

    # Authorization
    authorizer_class_name: str
    principal_builder_class: str
    super_users: str | None
    allow_everyone_if_no_acl_found: bool

    # Brokers
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    auto_leader_rebalance_enable: bool
    unclean_leader_election_enable: bool

    # Defaults for topics and policies
    num_partitions: int
    default_replication_factor: int
    min_insync_replicas: int
    delete_topic_enable: bool
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    create_topic_policy_class_name: str | None
    alter_config_policy_class_name: str | None

    # Delegation tokens and encoded passwords
    delegation_token_secret_key: Secret | None
    delegation_token_master_key: Secret | None
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int
    password_encoder_secret: Secret | None
    password_encoder_cipher_algorithm: str
    password_encoder_iterations: int
    password_encoder_key_length: int
    password_encoder_keyfactory_algorithm: str | None

    # ZooKeeper
    zookeeper_connect: str | None
    zookeeper_connection_timeout_ms: int | None
    zookeeper_session_timeout_ms: int
    zookeeper_max_in_flight_requests: int
    zookeeper_set_acl: bool
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: Secret | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_password: Secret | None
    zookeeper_ssl_truststore_type: str | None
    zookeeper_ssl_endpoint_identification_algorithm: str
    zookeeper_ssl_protocol: str
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None
    zookeeper_metadata_migration_enable: bool
    zookeeper_metadata_migration_min_batch_size: int

    # Keys of this program
    migrator_grpc_listener: str
    migrator_grpc_voters: tuple[str, ...]
    migrator_grpc_tls_certificate_file: str
    migrator_grpc_tls_key_file: str
    migrator_grpc_tls_ca_file: str
    migrator_grpc_voter_principals: str
    migrator_grpc_operator_principals: str
    migrator_quorum_require_bootstrap: bool
    migrator_metrics_listener: str
    migrator_metrics_tls_certificate_file: str
    migrator_metrics_tls_key_file: str
    migrator_metrics_tls_ca_file: str
    migrator_metrics_basic_auth_file: str
    migrator_write_behind_max_records: int
    migrator_write_behind_max_age_ms: int
    migrator_write_behind_max_block_ms: int
    migrator_write_behind_drain_ms: int
    migrator_zookeeper_jaas_file: str
    migrator_zookeeper_jaas_section: str
    migrator_zookeeper_jute_maxbuffer: int
    migrator_reconcile_max_deletes: int
    migrator_audit_interval_ms: int
    migrator_finish_require_verify: bool
    migrator_keep_way_back: bool
    migrator_copy_batch_records: int
    migrator_journal_max_bytes: int
    migrator_authorizer_log_file: str
    migrator_authorizer_log_max_bytes: int
    migrator_authorizer_log_allowed: str
    migrator_log_format: str

    @cached_property
    def protocol_map(self) -> dict[str, str]:
        """Listener name -> security protocol; names of controller listeners without an entry are PLAINTEXT, as KIP-590
        allows when the default map is in force."""
        found = parse_protocol_map(self.listener_security_protocol_map)
        if "listener.security.protocol.map" not in self.explicit:
            for name in self.controller_listeners:
                found.setdefault(name, "PLAINTEXT")
        return found

    @cached_property
    def controller_listeners(self) -> tuple[str, ...]:
        """Names in ``controller.listener.names``, upper case; brokers and peers use the first."""
        return tuple(trimmed(name).upper() for name in listener_names(self.controller_listener_names or ""))

    @cached_property
    def parsed_listeners(self) -> tuple[Listener, ...]:
        """The listeners that this node binds."""
        return parse_listeners(self.listeners, self.protocol_map)

    @cached_property
    def parsed_advertised_listeners(self) -> tuple[Listener, ...]:
        """The listeners that other nodes connect to: ``advertised.listeners``, otherwise ``listeners``."""
        return parse_listeners(self.advertised_listeners or self.listeners, self.protocol_map)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """The addresses of this controller for other nodes, in the order of ``controller.listener.names``: the
        advertised ones, otherwise the bound ones (``KafkaConfig.effectiveAdvertisedControllerListeners``)."""
        bound = {listener.name: listener for listener in self.parsed_listeners}
        advertised = {listener.name: listener for listener in self.parsed_advertised_listeners}
        found = (advertised.get(name, bound.get(name)) for name in self.controller_listeners)
        return tuple(listener for listener in found if listener is not None)

    @cached_property
    def known_listeners(self) -> frozenset[str]:
        """Names that may follow ``listener.name.``, in lower case: of this node, and of the brokers' listeners that it
        knows."""
        names = (*self.protocol_map, *self.controller_listeners, self.broker_rpc_listener)
        return frozenset(name.lower() for name in names)

    @cached_property
    def voters(self) -> tuple[VoterAddress, ...]:
        """The static voter set, in order of id; empty when only the log has the voters."""
        return parse_voters(self.controller_quorum_voters)

    @cached_property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of controllers that can be asked for the leader, in the order of the key."""
        return parse_bootstrap_servers(self.controller_quorum_bootstrap_servers)

    @cached_property
    def grpc_voters(self) -> tuple[VoterAddress, ...]:
        """gRPC addresses of the voters; empty when the quorum speaks the Kafka protocol."""
        return parse_voters(self.migrator_grpc_voters)

    @cached_property
    def grpc_voter_principals(self) -> dict[str, int]:
        """Certificate name -> its voter, for gRPC."""
        return parse_voter_principals(self.migrator_grpc_voter_principals)

    @cached_property
    def grpc_operator_principals(self) -> frozenset[str]:
        """Certificate names that may give orders over gRPC."""
        return parse_principals(self.migrator_grpc_operator_principals)

    @cached_property
    def log_directories(self) -> tuple[Path, ...]:
        return tuple(map(Path, entries_of(self.log_dir if self.log_dirs is None else self.log_dirs)))

    @cached_property
    def metadata_directory(self) -> Path:
        """The directory of this node's meta.properties and ``__cluster_metadata-0``."""
        return Path(self.metadata_log_dir or self.log_directories[0])

    def mechanisms_of(self, listener: str) -> tuple[str, ...]:
        own = self.explicit.get(f"listener.name.{listener.lower()}.sasl.enabled.mechanisms")
        return self.sasl_enabled_mechanisms if own is None else split_list(own)

    @cached_property
    def broker_rpc_listener(self) -> str:
        """Name of the brokers' listener for LeaderAndIsr and similar requests, chosen as by a ZooKeeper controller."""
        if self.control_plane_listener_name:
            return self.control_plane_listener_name.upper()
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @cached_property
    def broker_rpc_protocol(self) -> str | None:
        """Security protocol of that listener; None when ``listener.security.protocol.map`` lacks it.

        A listener that is named only by ``security.inter.broker.protocol`` needs no entry
        (``KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol``).
        """
        if self.control_plane_listener_name or self.inter_broker_listener_name:
            return self.protocol_map.get(self.broker_rpc_listener)
        return self.security_inter_broker_protocol.upper()

    @cached_property
    def super_user_names(self) -> frozenset[str]:
        """``super.users``, such as ``User:admin``; these principals may do everything."""
        return super_users_of(self.super_users or "")

    @property
    def zookeeper_chroot(self) -> str:
        """The path below which the cluster's znodes are, "" for the root."""
        return "".join((self.zookeeper_connect or "").partition("/")[1:]).rstrip("/")

    @property
    def zookeeper_authenticated(self) -> bool:
        """Whether this node authenticates to ZooKeeper, by SASL or by a TLS client certificate. Otherwise znodes that
        are created with ``zookeeper.set.acl`` would have no owner."""
        certificate = self.zookeeper_ssl_client_enable and self.zookeeper_ssl_keystore_location
        return bool(self.migrator_zookeeper_jaas_file or certificate)
