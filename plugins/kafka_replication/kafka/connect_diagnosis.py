"""Makes the error for a cluster that does not admit a client: the side, the address, the cause and the remedy.

The names of librdkafka's settings, which its clients accept but do not list. Messages suggest one for a misspelt
name.

From `rd_kafka_conf_properties_show` of librdkafka 2.16.0; the test of this list compares it with the library.

Translates errors of Kafka's client into errors of this package.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaError

from kafka_replication.kafka import causes
from kafka_replication.kafka.callbacks import token_callback
from kafka_replication.kafka.causes import ConnectCause
from kafka_replication.kafka.error_table import row_of
from kafka_replication.kafka.probe import addresses, probe
from kafka_replication.model.errors import BadInput, Fenced, NotAuthorized, ReplicationError, TlsFailed, Unreachable
from kafka_replication.model.offsets import replication_of
from kafka_replication.model.rights import UNKNOWN_PRINCIPAL, ClusterName, Operation, Resource, Right
from kafka_replication.planning.rights import on_transactions

NAMES = frozenset(
    """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size bootstrap.servers
    broker.address.family broker.address.ttl broker.version.fallback builtin.features check.crcs client.dns.lookup
    client.id client.rack compression.codec compression.level compression.type connections.max.idle.ms
    consume.callback.max.messages coordinator.query.interval.ms debug delivery.report.only.error delivery.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push
    enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms https.ca.location https.ca.pem internal.termination.signal isolation.level linger.ms
    log.connection.close log.queue log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records message.copy.max.bytes message.max.bytes
    message.send.max.retries message.timeout.ms metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy offset.store.method offset.store.path
    offset.store.sync.interval.ms partition.assignment.strategy partitioner plugin.library.paths produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy receive.message.max.bytes
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.certificate.verify_cb ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
    ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    transaction.timeout.ms transactional.id
    """.split()  # noqa: SIM905 - a list of these names has 167 lines
)
_ALIKE = 0.8  # of difflib: sasl.user is near sasl.username, a setting of Java's client is near nothing


SIDE, CONNECTION = "kafka-replication.side", "kafka-replication.connection"  # beside the client's own settings
# The messages of librdkafka 2.15 and 2.16 if it can make no client of the settings.
_MAKING = "Failed to create admin client: "
_UNUSABLE = re.compile(r"(ssl\.[a-z.]+)(?: failed: | PKCS#12 file: .*?(?=error:)|: .*?(?=error:))(.*)")
_MISSPELT = re.compile(r'No such configuration property: "(.*)"')
_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
# OpenSSL's reasons for a key that its password does not open. It is only tried: the bytes may look like something else.
_NOT_OPENED = re.compile("PEM lib|bad decrypt|password|cipherfinal|asn1")
_SETTING = re.compile(r"[a-z][a-z0-9_.]*[a-z0-9]")
_KEYS, _KEY_PASSWORD = ("ssl.key.location", "ssl.key.pem"), "ssl.key.password"
_ALSO_TEXT = ("ssl.key.location", "ssl.certificate.location", "ssl.ca.location")  # or as .pem
_STORE, _STORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.password"
_OWN_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
# The event is complete; a probe would only add that the port is open.
_SAID_IT_ALL = (causes.LOGIN_REFUSED, causes.MECHANISM_NOT_ENABLED, causes.CLIENT_CERTIFICATE_REFUSED)

TOKEN = 10.0  # seconds for a token, as confluent-kafka has

Diagnosis = Mapping[str, ConnectCause]  # by address


def name_of(settings: Mapping[str, Any]) -> ClusterName:
    """The name of the cluster in messages."""
    return ClusterName(
        str(settings.get("bootstrap.servers", "")), settings.get(SIDE, ""), str(settings.get(CONNECTION, ""))
    )


def principal_of(settings: Mapping[str, Any]) -> str:
    """The client's principal for the brokers, if its settings show it."""
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    if protocol.startswith("SASL"):
        return f"User:{settings['sasl.username']}" if settings.get("sasl.username") else UNKNOWN_PRINCIPAL
    return UNKNOWN_PRINCIPAL if any(name in settings for name in _OWN_CERTIFICATE) else "User:ANONYMOUS"


def look(settings: Mapping[str, Any], reported: Mapping[str, str]) -> Diagnosis:
    """The causes at the bootstrap addresses that have one. ``reported`` is the newest error of each address."""
    bootstrap = addresses(settings)
    with ThreadPoolExecutor(max(1, len(bootstrap))) as threads:
        diagnosis = dict(
            zip(
                bootstrap,
                threads.map(lambda address: _cause(address, reported.get(address, ""), settings), bootstrap),
                strict=True,
            )
        )
    return {address: cause for address, cause in diagnosis.items() if cause is not None}


def is_final(settings: Mapping[str, Any], diagnosis: Diagnosis) -> bool:
    """True if no address can ever work with these settings."""
    bootstrap = addresses(settings)
    return bool(bootstrap) and all(address in diagnosis and diagnosis[address].is_final for address in bootstrap)


def _cause(address: str, said: str, settings: Mapping[str, Any]) -> ConnectCause | None:
    cause = causes.of_text(said)
    if cause in _SAID_IT_ALL:
        return _with_details(cause, said, settings)
    seen = probe(address, settings)
    if cause is not None and (seen is None or (cause is causes.CERTIFICATE_NOT_VERIFIED and not seen.is_final)):
        resolved = cause is causes.NAME_NOT_RESOLVED  # the probe found the address
        return replace(_with_details(cause, said, settings), is_final=cause.is_final and not resolved)
    return seen


def _with_details(cause: ConnectCause, said: str, settings: Mapping[str, Any]) -> ConnectCause:
    """The cause with details of the connection, and with the message."""
    if cause is causes.CLIENT_CERTIFICATE_REFUSED and not any(name in settings for name in _OWN_CERTIFICATE):
        cause = causes.CLIENT_CERTIFICATE_MISSING
    if cause in (causes.LOGIN_REFUSED, causes.LOGIN_FAILED) and _mechanism(settings) == "OAUTHBEARER":
        cause = causes.TOKEN_REFUSED
    what = cause.what
    if cause is causes.LOGIN_REFUSED:
        mechanism = _mechanism(settings) or "GSSAPI"
        what = f"{what} of {settings.get('sasl.username', 'this client')!r} by {mechanism}"
    return replace(cause, what=f"{what} ({said})")


def _mechanism(settings: Mapping[str, Any]) -> object:
    return settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")


def error_of(
    settings: Mapping[str, Any], diagnosis: Diagnosis, otherwise: str, waited: float | None = None
) -> ReplicationError:
    """The error. ``otherwise`` is the text if no cause is known; ``waited`` is in seconds."""
    cluster = name_of(settings)
    if not diagnosis:
        return Unreachable(
            f"cannot reach {cluster} within {waited or 0:.0f} s: {otherwise}",
            "check the address, port and security settings of the connection, and that the brokers run",
        )
    first = next((cause for cause in diagnosis.values() if cause.is_final), next(iter(diagnosis.values())))
    several = len(addresses(settings)) > 1
    said = "; ".join(f"{address}: {cause.what}" if several else cause.what for address, cause in diagnosis.items())
    if is_final(settings, diagnosis):
        return first.kind(f"{cluster}: {said}", first.remedy)
    return Unreachable(f"cannot reach {cluster} within {waited or 0:.0f} s: {said}", first.remedy)


def why_no_token(settings: Mapping[str, Any]) -> ReplicationError:
    """The error of the function of tokens, which is called once more: confluent-kafka shows none."""
    from kafka_replication.wire.login import tokens_of  # only this failure needs it

    function, cluster = token_callback(settings), name_of(settings)
    if function is not None:
        try:
            tokens_of(function, settings).current(TOKEN)
        except ReplicationError as e:
            return type(e)(f"{cluster}: {e.what}", e.remedy)
    return Unreachable(f"{cluster}: there was no token for the login within {TOKEN:.0f} s", "run again")


def unusable(settings: Mapping[str, Any], reason: str) -> ReplicationError:
    """The error if no client can be made of the settings: the refused setting, and the remedy."""
    cluster, reason = name_of(settings), reason.strip().replace(_MAKING, "")
    # A setting that names a file may have a PEM text, which can be a key and must not be shown (RFC 7468).
    files = (name for name in settings if name.startswith("ssl.") and name.endswith(".location"))
    if name := next((name for name in files if "-----BEGIN" in str(settings[name])), None):
        text = f"the text into {name.replace('.location', '.pem')}, or " if name in _ALSO_TEXT else ""
        return TlsFailed(
            f"{cluster}: {name} has to name a file, but has the content of one",
            f"put {text}the file's name into {name}",
        )
    if match := _UNUSABLE.search(reason):
        return _unusable_tls(settings, match[1], match[2], reason)
    if _STORE_PASSWORD in reason and _STORE in settings and not settings.get(_STORE_PASSWORD):
        return _wrong_password(settings, _STORE, _STORE_PASSWORD, reason)
    extra = f"the extra of connection {cluster.connection!r}" if cluster.connection else "the connection's extra"
    if match := _MISSPELT.search(reason):
        near = difflib.get_close_matches(match[1][:200], sorted(NAMES), n=1, cutoff=_ALIKE)
        question = f", did you mean {near[0]}?" if near else ""
        return BadInput(
            f"{cluster}: {match[1]} is no setting of the client{question}", f"correct or remove {match[1]} in {extra}"
        )
    if _NO_KERBEROS in reason:
        unset = "" if _mechanism(settings) else ", as the connection does not set it"
        return BadInput(
            f"{cluster}: this client has no Kerberos (sasl.mechanism is GSSAPI{unset})",
            f"set sasl.mechanism in {extra}, or install a confluent-kafka that is built with Kerberos, see"
            " docs/connections.md",
        )
    name = next((word for word in _SETTING.findall(reason) if word in settings or word in NAMES), None)
    return BadInput(
        f"{cluster}: the client settings are not usable: {reason}", f"correct {name or 'the settings'} in {extra}"
    )


def _unusable_tls(settings: Mapping[str, Any], name: str, why: str, reason: str) -> TlsFailed:
    """The error for a file or text of the TLS settings. ``name`` is its setting."""
    value, cluster, remedy = str(settings.get(name, "")), name_of(settings), causes.SETTING_UNUSABLE.remedy
    is_file = name.endswith(".location")
    if is_file and not Path(value).is_file():
        return TlsFailed(f"{cluster}: {name} names the file {value}, which does not exist on this machine", remedy)
    shown = f" ({value})" if is_file else ""
    if "key values mismatch" in why:
        cause = causes.KEY_OF_ANOTHER_CERTIFICATE
        return TlsFailed(f"{cluster}: the key in {name}{shown} does not belong to the certificate", cause.remedy)
    if name == _STORE and "mac verify failure" in why:
        return _wrong_password(settings, name, _STORE_PASSWORD, why)
    may_be_closed = not settings.get(_KEY_PASSWORD) or _NOT_OPENED.search(why)
    if name in _KEYS and may_be_closed and _has_password(value, is_file=is_file):
        return _wrong_password(settings, name, _KEY_PASSWORD, why)
    return TlsFailed(f"{cluster}: {name}{shown} cannot be used: {reason}", remedy)


def _has_password(key: str, *, is_file: bool) -> bool:
    """True if a key is encrypted. Its PEM shows it (RFC 7468, section 11; RFC 1421, section 4.6.1.1)."""
    try:
        return "ENCRYPTED" in (Path(key).read_text(errors="replace") if is_file else key)
    except OSError:
        return False


def _wrong_password(settings: Mapping[str, Any], name: str, password: str, why: str) -> TlsFailed:
    shown = f" ({settings[name]})" if name.endswith(".location") else ""
    thing = f"{'file' if name == _STORE else 'key'} in {name}{shown}"
    what = (
        f"{password} is not the password of the {thing}: {why}"
        if settings.get(password)
        else f"the {thing} has a password, and the connection has none"
    )
    return TlsFailed(f"{name_of(settings)}: {what}", causes.KEY_PASSWORD_WRONG.remedy)


_RESOURCES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The cluster of a request, and its target: the operation and the name on each kind of resource."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[Resource, tuple[Operation, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, client: object, **needs: tuple[Operation, str]) -> Self:
        """The `Asked` of this client; ``needs`` by the names of `Resource`, in small letters."""
        reported = getattr(client, "reported", None)
        return cls(
            reported.settings if reported else {}, {Resource[name.upper()]: need for name, need in needs.items()}
        )

    def right(self, resource: Resource) -> Right | None:
        """The right that is needed on this kind of resource; None if it, or the side, is not known. For one
        transactional id it is the right on all ids of the replication, because the next one would be denied, too.
        """
        side = name_of(self.settings).side
        if resource not in self.needs or not side:
            return None
        operation, name = self.needs[resource]
        if resource is Resource.TRANSACTIONAL_ID:
            return on_transactions(replication_of(name))
        return Right(side=side, operation=operation, resource=resource, name=name)


NOTHING = Asked()


def translate(error: KafkaError, doing: str, asked: Asked = NOTHING) -> ReplicationError:
    """The error of this package for Kafka's ``error``, see `error_table`. It says how to grant a missing right."""
    row = row_of(error)
    if row.kind is Fenced:
        return Fenced(
            f"{doing}: fenced ({row.name}): a newer copier took over, or the transaction outlived its time-out",
            row.remedy,
        )
    if error.code() in _RESOURCES and (right := asked.right(_RESOURCES[error.code()])):
        is_one = right.resource is Resource.TRANSACTIONAL_ID  # perhaps a rule denies this one alone
        as_ = f" as {asked.needs[right.resource][1]}" if is_one else ""
        return NotAuthorized.of(right, name_of(asked.settings), principal_of(asked.settings), f"{doing}{as_}")
    cluster = name_of(asked.settings)
    where = f"{cluster}: " if cluster.side else ""
    return row.kind(f"{doing}: {where}{row.name}: {error.str()}", row.remedy)
