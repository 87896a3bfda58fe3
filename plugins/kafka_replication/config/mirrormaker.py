"""Reads a MirrorMaker 2 properties file, and says what a replication's file has in its place. Pure.

A flow ``A->B`` that is enabled becomes one replication. `KEYS` has every key that MirrorMaker knows: a function that
makes keys of the replication's file, or the reason why nothing takes its place. Values of keys that are not known are
never shown: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from kafka_replication.config import names
from kafka_replication.model.errors import BadInput

BY_HAND = "take that line out of a copy of the file, and write the topics into the replication's file by hand"
_MIRROR = "org.apache.kafka.connect.mirror."
_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def properties(data: bytes) -> dict[str, str]:
    """The keys and values, as ``java.util.Properties.load`` reads them."""
    found, lines = dict[str, str](), iter(re.split(r"\r\n|\r|\n", data.decode("latin-1")))
    for line in lines:
        text = line.lstrip(" \t\f")
        if text[:1] in ("", "#", "!"):
            continue
        while (len(text) - len(text.rstrip("\\"))) % 2:
            text = text[:-1] + next(lines, "").lstrip(" \t\f")
        if entry := _ENTRY.match(text):
            found[_plain(entry[1])] = _plain(entry[2]).strip()
    return found


def _plain(text: str) -> str:
    def character(escaped: re.Match[str]) -> str:
        which = escaped[1]
        return chr(int(which[1:], 16)) if len(which) == 5 else _CONTROLS.get(which, which)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """``source->target`` and its settings, those of all flows and MirrorMaker's defaults among them.

    ``given`` are the settings that the file has, each with its key there. ``both_ways``: the other direction is
    enabled, too.
    """

    source: str
    target: str
    settings: Mapping[str, str]
    given: Mapping[str, str]
    both_ways: bool

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9._-]", "-", f"{self.source}-to-{self.target}".lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A replication's file as a document, and what has no equivalent: each key with the reason."""

    document: Mapping[str, object]
    notes: Mapping[str, str]


Fields = Mapping[str, object]  # by the dotted key of the replication's file
Rule = str | Callable[[Flow, str], Fields | str]  # given the value


def aliases(found: Mapping[str, str]) -> list[str]:
    """The clusters, in their order. Raises BadInput if there is none."""
    if clusters := _listed(found.get("clusters", "")):
        return clusters
    raise BadInput("the file has no key 'clusters'", "name the properties file with which MirrorMaker 2 is started")


def flows(found: Mapping[str, str]) -> list[Flow]:
    """The flows that are enabled. Raises BadInput if there is none, or if two would have the same name."""
    clusters = aliases(found)
    enabled = [
        (source, target)
        for source in clusters
        for target in clusters
        if source != target and found.get(f"{source}->{target}.enabled", "").lower() == "true"
    ]
    if not enabled:
        raise BadInput("no flow is enabled", "set A->B.enabled = true for two of the names in 'clusters'")
    of_all = {
        key: key
        for key in found
        if "->" not in key and key != "clusters" and not key.startswith(tuple(f"{alias}." for alias in clusters))
    }
    made = list[Flow]()
    for source, target in enabled:
        prefix, support = f"{source}->{target}.", f"{target}.{_EXACTLY_ONCE}"
        own = {key.removeprefix(prefix): key for key in found if key.startswith(prefix) and key != f"{prefix}enabled"}
        given = of_all | ({_EXACTLY_ONCE: support} if support in found else {}) | own
        given = {OLD_NAMES.get(key, key): place for key, place in given.items()}
        values = {key: found[place] for key, place in given.items()}
        settings, both_ways = DEFAULTS | values, (target, source) in enabled
        made.append(Flow(source=source, target=target, settings=settings, given=given, both_ways=both_ways))
    if len({flow.name for flow in made}) < len(made):
        raise BadInput("two flows would have the same name", "give the clusters names that differ in more than case")
    return made


def connection_id(alias: str) -> str:
    """An id that is also part of the name of an environment variable."""
    return f"kafka_{re.sub(r'[^a-z0-9]', '_', alias.lower())}"


def translated(flow: Flow) -> Translated:
    """The replication's file for this flow. Raises BadInput for what cannot be translated at all."""
    fields: dict[str, object] = {
        "name": flow.name,
        "source.connection": connection_id(flow.source),
        "target.connection": connection_id(flow.target),
    }
    notes = dict[str, str]()
    for key, value in flow.settings.items():
        if key.endswith(".enabled") and value.lower() == "false":
            continue  # it asks for nothing
        rule = next((rule for pattern, rule in KEYS.items() if fnmatchcase(key, pattern)), UNKNOWN)
        answer = rule if isinstance(rule, str) else rule(flow, value)
        if isinstance(answer, str):
            notes[flow.given.get(key, f"{key} (MirrorMaker's default)")] = answer
        else:
            fields |= answer
    document = dict[str, object]()
    for key, field in fields.items():
        section, _, name = key.partition(".")
        below = document.setdefault(section, {}) if name else document
        assert isinstance(below, dict)
        below[name or section] = field
    return Translated(document=document, notes=notes)


def _listed(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _entries(key: str, text: str) -> Iterator[str]:
    """MirrorMaker's expressions, which have to fit a whole name, as entries of `topics`. Raises BadInput."""
    for expression in _listed(text):
        if re.fullmatch(r"(?:[A-Za-z0-9_-]|\\[.-])+", expression):
            yield expression.replace("\\", "")
            continue
        entry = f"^(?:{expression})$" if "|" in expression else f"^{expression.removeprefix('^').removesuffix('$')}$"
        try:
            names.compiled(entry)
        except ValueError as error:
            raise BadInput(f"{key}: '{expression}' {error}", BY_HAND) from None
        yield entry


def _topics(flow: Flow, value: str) -> Fields:
    """The topics that MirrorMaker's filter and policy select, and their names on the target.

    Left out are what the filter excludes, Kafka's and MirrorMaker's own topics, and with its own policy those that came
    from the target (``MirrorSourceConnector.isCycle``).
    """
    include = list(_entries(flow.given.get("topics", "topics"), value))
    exclude = [*_entries(flow.given.get("topics.exclude", "topics.exclude"), flow.settings["topics.exclude"]), *OWN]
    exclude = list(dict.fromkeys(exclude))
    separator = flow.settings["replication.policy.separator"]
    if renames := _renames(flow):
        between = re.escape(separator)
        exclude.append(f"^(?:.*{between})?{re.escape(flow.target)}{between}")
    include = [
        entry for entry in include if names.is_pattern(entry) or not any(names.fits(out, entry) for out in exclude)
    ]
    fields: dict[str, object] = {"topics.include": include}
    if any(map(names.is_pattern, include)):
        fields["topics.exclude"] = exclude
    return fields | ({"topics.rename": f"{flow.source}{separator}{names.TOPIC_PLACEHOLDER}"} if renames else {})


def _settings(flow: Flow, value: str) -> Fields | str:  # noqa: ARG001 - see `Rule`
    if "sync.topic.configs.enabled" in flow.given:
        return {"target_topics.follow": "apply"}
    return "what differs is shown, and not changed: target_topics.follow: apply does what MirrorMaker does"


def _groups(flow: Flow, value: str) -> Fields:  # noqa: ARG001 - see `Rule`
    """The groups whose offsets MirrorMaker commits on the target. Raises BadInput."""
    keys = ("groups", "groups.exclude")
    return {
        f"groups.{name}": list(_entries(flow.given.get(key, key), flow.settings[key]))
        for name, key in zip(("include", "exclude"), keys, strict=True)
    }


def _renames(flow: Flow) -> bool:
    """True for MirrorMaker's default policy, false for the one that keeps names. Raises BadInput for another one."""
    policy = flow.settings["replication.policy.class"].removeprefix(_MIRROR)
    if policy not in POLICIES:
        place = flow.given["replication.policy.class"]
        remedy = "take that line out of a copy of the file, and set topics.rename in what comes of it"
        raise BadInput(f"{place}: the names that {policy} gives to topics are not known", remedy)
    return POLICIES[policy]


def _policy(flow: Flow, value: str) -> Fields | str:  # noqa: ARG001 - see `Rule`
    if _renames(flow) or not flow.both_ways:
        return {}
    return (
        "both directions keep the names, so that records go round for ever; set transform: provenance in both files,"
        " and topics.exclude_from with the cluster id of the target"
    )


def _filter(flow: Flow, value: str) -> Fields:
    if value.removeprefix(_MIRROR) == "DefaultTopicFilter":
        return {}
    raise BadInput(f"{flow.given['topic.filter.class']}: which topics {value} selects is not known", BY_HAND)


def _replicas(flow: Flow, value: str) -> Fields:
    if not re.fullmatch(r"-?\d+", value):
        raise BadInput(f"{flow.given['replication.factor']}: '{value}' is not a number", "correct it")
    return {"target_topics.replication_factor": int(value)} if int(value) > 0 else {}


def connection(alias: str, found: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The extra of the Airflow connection to a cluster, and the keys that it lacks. ``<...>`` stands for what a person
    fills in, every secret among them.
    """
    prefix = f"{alias}."
    of_all = {key: key for key in found if key.startswith(("security.", "sasl.", "ssl.", "bootstrap."))}
    given = of_all | {key.removeprefix(prefix): key for key in found if key.startswith(prefix)}
    extra, lacking = dict[str, str](), list[str]()
    for key, place in sorted(given.items()):
        pattern = next((pattern for pattern in CLIENT if fnmatchcase(key, pattern)), None)
        if pattern is None:
            lacking.append(place)
        elif (made := CLIENT[pattern]) is not None:
            extra |= made(found[place])
        else:
            extra[key] = f"<{place}>" if "${" in found[place] else found[place]
    return extra, [key for key in lacking if not key.endswith(_EXACTLY_ONCE)]


_EXACTLY_ONCE = "exactly.once.source.support"
_DEFAULT, _IDENTITY = f"{_MIRROR}DefaultReplicationPolicy", f"{_MIRROR}IdentityReplicationPolicy"
POLICIES: Final = {name.removeprefix(_MIRROR): renames for name, renames in ((_DEFAULT, True), (_IDENTITY, False))}
# Topics that MirrorMaker never copies, but those of Kafka, which no expression selects here; and its heartbeats.
OWN: Final = ("heartbeats", r"^mm2.*\.internal$", r"^.*\.checkpoints\.internal$", r"^\.")
OLD_NAMES: Final = {
    f"{name}.blacklist": f"{name}.exclude" for name in ("topics", "groups", "config.properties")
}  # before Kafka 3.0, and until 4.0
# Of MirrorMaker 4.3, where they ask for something.
DEFAULTS: Final = {
    "topics": ".*",
    "topics.exclude": r"mm2.*\.internal, .*\.replica, __.*",
    "replication.policy.class": _DEFAULT,
    "replication.policy.separator": ".",
    "sync.topic.configs.enabled": "true",
    "sync.topic.acls.enabled": "true",
    "groups": ".*",
    "groups.exclude": "console-consumer-.*, connect-.*, __.*",
}
_GROUPS = "groups says which offsets of groups are moved: docs/consumer-groups.md"
_CONNECTION = "settings of clients are in the connection, under librdkafka's names"
_BOOKKEEPING = "MirrorMaker's own bookkeeping; here a ledger on the target has receipts"
UNKNOWN = "not known here; nothing in the file stands for it"
# The first pattern that a key of a flow fits.
KEYS: Final[Mapping[str, Rule]] = {
    "topics": _topics,
    "topics.exclude": lambda *_: {},  # with `topics`
    "topic.filter.class": _filter,
    "replication.policy.class": _policy,
    "replication.policy.separator": lambda *_: {},  # with `topics`
    "replication.policy.internal.*": _BOOKKEEPING,
    "replication.factor": _replicas,
    _EXACTLY_ONCE: lambda *_: {},  # the default, whatever MirrorMaker's setting is
    "consumer.auto.offset.reset": lambda _, value: {"start_from": "latest"} if value.lower() == "latest" else {},
    "refresh.topics.*": "each run looks for new topics and partitions",
    "sync.topic.configs.enabled": _settings,
    "sync.topic.configs.*": "each run looks",
    "config.properties.exclude": lambda flow, value: {
        "target_topics.follow_except": list(_entries(flow.given["config.properties.exclude"], value))
    },
    "config.property.filter.class": "docs/partitioning.md says which settings are never followed",
    "use.defaults.from": "docs/partitioning.md says which settings are never followed",
    "sync.topic.acls.*": "kafka-replication acls plan and apply carry rights over, by hand",
    "sync.group.offsets.enabled": _groups,
    **dict.fromkeys(("groups", "groups.exclude"), lambda *_: {}),  # with `sync.group.offsets.enabled`
    "group.filter.class": _GROUPS,
    "refresh.groups.*": _GROUPS,
    "sync.group.offsets.*": _GROUPS,
    "emit.checkpoints.*": _GROUPS,
    "checkpoints.topic.*": _GROUPS,
    "*heartbeats.*": "lag_seconds in status, alerts.lag and metrics say whether copies arrive",
    "*offset-syncs.*": _BOOKKEEPING,
    "offset.lag.max": _BOOKKEEPING,
    "*.storage.*": _BOOKKEEPING,
    "tasks.max": "as many partitions are copied at a time as Spark has cores (connection of type spark)",
    "transforms*": "filter and transform: docs/filters-and-transforms.md, Coming from Kafka Connect",
    "predicates*": "filter and transform: docs/filters-and-transforms.md, Coming from Kafka Connect",
    "*.converter*": "keys and values are copied as bytes",
    "metric*": "docs/monitoring.md has metrics",
    "add.source.alias.to.metrics": "docs/monitoring.md has metrics",
    "consumer.*": _CONNECTION,
    "producer.*": _CONNECTION,
    "admin.*": _CONNECTION,
    "source.*": _CONNECTION,
    "target.*": _CONNECTION,
    **dict.fromkeys(("bootstrap.servers", "security.*", "sasl.*", "ssl.*", "client.id"), lambda *_: {}),  # `connection`
    "config.providers*": "secrets are in the connection, or in a secrets backend of Airflow",
    **dict.fromkeys(
        ("listeners", "rest.*", "dedicated.mode.*", "plugin.*", "offset.flush.*"), "there is no Connect here"
    ),
}


def _login(jaas: str) -> Mapping[str, str]:
    if "ScramLoginModule" not in jaas and "PlainLoginModule" not in jaas:
        return {}
    username = re.search(r'username\s*=\s*"([^"$]*)"', jaas)
    return {"sasl.username": username[1] if username else "<user>", "sasl.password": "<password>"}


# Settings of Java's client, and what librdkafka's has in their place; None: the same.
CLIENT: Final[Mapping[str, Callable[[str], Mapping[str, str]] | None]] = {
    **dict.fromkeys(("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.kerberos.service.name")),
    "sasl.jaas.config": _login,
    "ssl.endpoint.identification.algorithm": lambda value: {"ssl.endpoint.identification.algorithm": value or "none"},
    "ssl.truststore.location": lambda _: {"ssl.ca.location": "<certificates of the truststore, as PEM>"},
    "ssl.truststore.certificates": lambda _: {"ssl.ca.pem": "<certificates>"},
    "ssl.keystore.location": lambda _: {
        "ssl.keystore.location": "<the keystore as PKCS#12>",
        "ssl.keystore.password": "<its password>",
    },
    "ssl.keystore.certificate.chain": lambda _: {"ssl.certificate.pem": "<certificates>"},
    "ssl.keystore.key": lambda _: {"ssl.key.pem": "<private key>"},
    **dict.fromkeys(("ssl.*.password", "ssl.*.type"), lambda _: {}),  # in what is filled in
    "sasl.oauthbearer.token.endpoint.url": lambda value: {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": value,
        "sasl.oauthbearer.client.id": "<id>",
        "sasl.oauthbearer.client.secret": "<secret>",
    },
}
