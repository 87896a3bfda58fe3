"""Maps each error code of librdkafka and of Kafka's protocol to an error of this package and its remedy.

Codes of the client begin with an underscore, as in `confluent_kafka.KafkaError`. Kafka's protocol guide ("Error Codes")
says which codes Kafka's own clients retry; librdkafka's codes are in its INTRODUCTION.md and rdkafka.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError

from kafka_replication.model.errors import (
    Fenced,
    GapFound,
    NotAuthenticated,
    NotAuthorized,
    NotReady,
    NotResolved,
    RecordRefused,
    Refused,
    ReplicationError,
    SessionEnded,
    TlsFailed,
    Unexpected,
    Unreachable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One code: the error of this package, whose type decides about retries, and the remedy."""

    name: str  # of the code
    kind: type[ReplicationError]
    remedy: str


_AGAIN = "the next run continues where this one stopped"
_SETTINGS = "correct the connection's settings in its extra"

_GROUPS: tuple[tuple[type[ReplicationError], str, str], ...] = (
    (
        Unreachable,
        f"check that the brokers run, and the network between; {_AGAIN}",
        "_TRANSPORT _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _ALL_BROKERS_DOWN _FAIL NETWORK_EXCEPTION"
        " REQUEST_TIMED_OUT",
    ),
    (NotResolved, "correct bootstrap.servers or advertised.listeners, or the name service", "_RESOLVE"),
    (
        NotReady,
        f"start the brokers that hold it: kafka-topics.sh --describe; {_AGAIN}",
        "LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE"
        " ELIGIBLE_LEADERS_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH"
        " OFFSET_NOT_AVAILABLE NOT_CONTROLLER UNKNOWN_CONTROLLER_ID STALE_CTRL_EPOCH STALE_BROKER_EPOCH"
        " LISTENER_NOT_FOUND REASSIGNMENT_IN_PROGRESS REBOOTSTRAP_REQUIRED _NO_OFFSET _NOENT _UNKNOWN_BROKER"
        " _NODE_UPDATE",
    ),
    (
        NotReady,
        f"bring the missing replicas back, see min.insync.replicas of the topic; {_AGAIN}",
        "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND _ISR_INSUFF",
    ),
    (
        NotReady,
        f"wait; if it stays, see the log of the brokers that hold __transaction_state; {_AGAIN}",
        "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR CONCURRENT_TRANSACTIONS"
        " TRANSACTION_COORDINATOR_FENCED _WAIT_COORD",
    ),
    (
        NotReady,
        "check that the topic exists, and that this client may describe it",
        "UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID _UNKNOWN_TOPIC _UNKNOWN_PARTITION",
    ),
    (
        NotReady,
        f"see the brokers' log, which has the cause; {_AGAIN}",
        "UNKNOWN KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND INVALID_MSG FETCH_SESSION_ID_NOT_FOUND"
        " INVALID_FETCH_SESSION_EPOCH OPERATION_NOT_ATTEMPTED",
    ),
    (NotReady, f"raise the quota of this client, or wait; {_AGAIN}", "THROTTLING_QUOTA_EXCEEDED"),
    (
        NotReady,
        f"run again; {_AGAIN}",
        "_RETRY _INTR _IN_PROGRESS _PREV_IN_PROGRESS _OUTDATED _PARTIAL _WAIT_CACHE _QUEUE_FULL _CRIT_SYS_RESOURCE",
    ),
    (
        SessionEnded,
        f"nothing: a new session reads from the ledger what is left; {_AGAIN}",
        "OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID INVALID_PRODUCER_ID_MAPPING"
        " INVALID_TXN_STATE TRANSACTION_ABORTABLE RECORD_LIST_TOO_LARGE _GAPLESS_GUARANTEE _INCONSISTENT _FATAL _STATE"
        " _PURGE_INFLIGHT _PURGE_QUEUE _DESTROY _DESTROY_BROKER",
    ),
    (Fenced, "run again when the other run has ended", "_FENCED INVALID_PRODUCER_EPOCH PRODUCER_FENCED"),
    (
        NotAuthorized,
        "grant the right, see docs/connections.md#access-rights-in-kafka",
        "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"
        " TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    ),
    (
        NotAuthenticated,
        "correct security.protocol and the sasl.* settings of the connection",
        "_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"
        " UNACCEPTABLE_CREDENTIAL INVALID_PRINCIPAL_TYPE PRINCIPAL_DESERIALIZATION_FAILURE",
    ),
    (
        NotAuthenticated,
        "renew the delegation token with which the connection logs in",
        "DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH"
        " DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_EXPIRED",
    ),
    (TlsFailed, "correct the ssl.* settings of the connection, or the broker's certificate", "_SSL"),
    (
        RecordRefused,
        "raise the topic's limit (max.message.bytes, message.timestamp.*), then run again",
        "MSG_SIZE_TOO_LARGE INVALID_MSG_SIZE INVALID_TIMESTAMP INVALID_RECORD _INVALID_DIFFERENT_RECORD",
    ),
    (
        GapFound,
        "run again: the plan then names the lost offsets and how to give them up",
        "OFFSET_OUT_OF_RANGE",
    ),
    (Unexpected, "see the brokers' log; run again", "_AUTO_OFFSET_RESET"),
    (Refused, "find out which records were lost (unclean leader election?) before going on", "_LOG_TRUNCATION"),
    (Refused, "repair the broker's log or its replica", "_BAD_MSG _BAD_COMPRESSION _UNDERFLOW"),
    (
        Refused,
        "lower copy.transaction_timeout, or raise transaction.max.timeout.ms of the target's brokers",
        "INVALID_TRANSACTION_TIMEOUT",
    ),
    (
        Refused,
        "upgrade the brokers, see docs/installing.md#versions-that-work-together",
        "UNSUPPORTED_VERSION _UNSUPPORTED_FEATURE UNSUPPORTED_ENDPOINT_TYPE",
    ),
    (Refused, "upgrade the topic's message format", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    (Refused, "ask the administrator of the cluster's policies", "POLICY_VIOLATION"),
    (
        Refused,
        "correct target_topics in the replication's file",
        "INVALID_CONFIG INVALID_REPLICATION_FACTOR INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT",
    ),
    (Refused, "correct the topic's name", "TOPIC_EXCEPTION"),
    (Refused, "use the topic that is there, or delete it", "TOPIC_ALREADY_EXISTS"),
    (Refused, "set delete.topic.enable on the brokers", "TOPIC_DELETION_DISABLED"),
    (
        Refused,
        _SETTINGS,
        "UNSUPPORTED_COMPRESSION_TYPE SECURITY_DISABLED INVALID_REQUIRED_ACKS INVALID_GROUP_ID _NOT_CONFIGURED"
        " _INVALID_ARG _FS",
    ),
    (
        Unexpected,
        "see the brokers' log and the run's log; this package sends no request that should get this answer",
        "INVALID_REQUEST DUPLICATE_RESOURCE RESOURCE_NOT_FOUND MISMATCHED_ENDPOINT_TYPE ELECTION_NOT_NEEDED"
        " NO_REASSIGNMENT_IN_PROGRESS FEATURE_UPDATE_FAILED INVALID_UPDATE_VERSION INVALID_REGISTRATION"
        " TELEMETRY_TOO_LARGE UNKNOWN_SUBSCRIPTION_ID INVALID_REGULAR_EXPRESSION _APPLICATION _CONFLICT _INVALID_TYPE"
        " _NOT_IMPLEMENTED _NOOP _READ_ONLY _UNKNOWN_PROTOCOL _KEY_SERIALIZATION _VALUE_SERIALIZATION"
        " _KEY_DESERIALIZATION _VALUE_DESERIALIZATION _PARTITION_EOF NO_ERROR",
    ),
    (
        Unexpected,
        "see the run's log; this package joins no consumer group",
        "ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT"
        " REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE OFFSET_METADATA_TOO_LARGE NON_EMPTY_GROUP"
        " GROUP_ID_NOT_FOUND MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID UNRELEASED_INSTANCE_ID"
        " GROUP_SUBSCRIBED_TO_TOPIC UNSTABLE_OFFSET_COMMIT FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH"
        " UNSUPPORTED_ASSIGNOR _ASSIGNMENT_LOST _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _EXISTING_SUBSCRIPTION"
        " _MAX_POLL_EXCEEDED _UNKNOWN_GROUP",
    ),
    (
        Unexpected,
        "see the run's log; this package uses no share groups, no Kafka Streams and no votes of controllers",
        "INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH SHARE_SESSION_LIMIT_REACHED"
        " FENCED_STATE_EPOCH STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED"
        " INCONSISTENT_VOTER_SET INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND",
    ),
)

TABLE: Mapping[int, Row] = {
    getattr(KafkaError, name): Row(name=name, kind=kind, remedy=remedy)
    for kind, remedy, names in _GROUPS
    for name in names.split()
}


def words(code: int) -> str:
    """librdkafka's own words for the code."""
    return str(KafkaError(code).str()).removeprefix("Broker: ").removeprefix("Local: ")


def row_of(error: KafkaError) -> Row:
    """The row of this code. A code that is not in the table is of a newer broker; the client's own flags decide."""
    if error.code() in TABLE:
        return TABLE[error.code()]
    if error.txn_requires_abort():
        kind: type[ReplicationError] = SessionEnded
    elif error.retriable() and not error.fatal():
        kind = NotReady
    else:
        kind = Unexpected
    remedy = "look the code up in Kafka's protocol guide; this version of the client does not know it"
    return Row(name=error.name(), kind=kind, remedy=remedy)
