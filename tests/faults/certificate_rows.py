"""A certificate expires while a run is at work: the broker's, or the client's. A new one is put in its place after a while."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from stack.kafka_cluster import KafkaCluster
from stack.ports import free_ports
from tests.faults.bench import Bench, Side
from tests.faults.proxy import Proxy
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.clusters import started
from tests.support.tls import A_DAY, Authority
from tests.support.waiting import wait_until

SHORT = timedelta(seconds=20)  # a run needs some seconds from its start to the middle of its copy
_LISTENER = "listener.name.proxied.ssl."
KEYSTORE = f"{_LISTENER}keystore.location"
_PEM = {
    f"{_LISTENER}keystore.type": "PEM",
    f"{_LISTENER}truststore.type": "PEM",
    f"{_LISTENER}client.auth": "required",
}


@dataclass(kw_only=True)
class Secured(Side):
    """One broker with TLS, which asks its clients for a certificate, too."""

    authority: Authority

    def renew_broker(self, valid: timedelta = A_DAY) -> datetime:
        """A new certificate; new connections get it at once. Returns when it expires."""
        expires = datetime.now(UTC) + valid
        file = str(self.authority.issue("broker", until=expires))
        # The same file as before: the broker reads it again.
        setting = ConfigEntry(KEYSTORE, file, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[setting])
        next(iter(self.admin.incremental_alter_configs([resource]).values())).result(30)
        return expires

    def renew_client(self, valid: timedelta = A_DAY) -> datetime:
        """A new certificate for clients that are made from now on. Returns when it expires."""
        expires = datetime.now(UTC) + valid
        self.authority.issue("client", until=expires)
        return expires

    def lets_in(self) -> bool:
        """Whether a new client with the present certificate is served."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, **self.clients, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def heal(self) -> None:
        self.renew_client()
        super().heal()
        self.renew_broker()


def _secured(folder: Path, until_the_end: ExitStack) -> Secured:
    authority = Authority(folder / "tls", "authority")
    broker, client = authority.issue("broker"), authority.issue("client")
    port, advertised = free_ports(2)
    files = {KEYSTORE: str(broker), f"{_LISTENER}truststore.location": str(authority.file)}
    cluster = KafkaCluster(
        "secured", folder, proxied=[(port, advertised)], proxied_protocol="SSL", extra={**_PEM, **files}
    )
    until_the_end.enter_context(started(cluster))
    proxy = until_the_end.enter_context(closing(Proxy(advertised, port, frames=False)))
    clients = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(client),
        "ssl.key.location": str(client),
    }
    return Secured(cluster=cluster, proxies=[proxy], clients=clients, authority=authority)


def secured_source(bench: Bench) -> Bench:
    return replace(bench, source=bench.other("secured", _secured))


def secured_target(bench: Bench) -> Bench:
    return replace(bench, target=bench.other("secured", _secured))


def expires(side: str, trial: Trial) -> None:
    """Connections live longer than the certificate that they began with, so all are cut when it has expired.

    A client that is let in no more says so, and the run ends: a hand has to renew the certificate.
    """
    secured: Secured = getattr(trial.bench, side)
    whose = trial.dice.choice(("broker", "client"))
    renew = secured.renew_broker if whose == "broker" else secured.renew_client
    trial.copy |= {"transaction_timeout": 40}  # the run halts until the certificate has expired
    end = renew(SHORT)
    run, gate = trial.at_gate("P1", 10)
    wait_until(lambda: datetime.now(UTC) > end)
    trial.hit = time.monotonic()
    trial.note(f"the {whose}'s certificate has expired")
    secured.proxies[0].cut()
    gate.unlink()
    if secured.lets_in():
        raise TrialFailed("an expired certificate is accepted")
    time.sleep(trial.dice.random() * 10)
    renew()
    trial.note(f"the {whose} has a new certificate")
    trial.finish(run)
    trial.forgive(run)


ROWS = (
    Row("target-certificate-expires", partial(expires, "target"), "core", bench=secured_target),
    Row("source-certificate-expires", partial(expires, "source"), "core", own_load=True, bench=secured_source),
)
