"""The ledger on the target's two topics: `KafkaLedger` implements `ledger.port.Ledger`.

``topics`` creates and checks the topics, ``reader`` reads both without ever being stale, ``writable`` says what keeps
entries from being written.
"""

from kafka_replication.kafka.ledger.kafka_ledger import KafkaLedger

__all__ = ["KafkaLedger"]
