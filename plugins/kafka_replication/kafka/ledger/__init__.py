"""The ledger on the target's two topics: `KafkaLedger` implements `ledger.port.Ledger`.

``topics`` creates and checks the topics, ``newest`` keeps the newest entry under each key, ``reader`` reads both topics
without ever being stale, ``writer`` encodes entries into an open transaction, ``writable`` says
what keeps entries from being written.
"""

from kafka_replication.kafka.ledger.kafka_ledger import KafkaLedger

__all__ = ["KafkaLedger"]
