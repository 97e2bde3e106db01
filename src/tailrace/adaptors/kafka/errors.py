"""Errors of Kafka and its client, as tailrace's errors.

`Unavailable` is for what passes by itself: no connection, an election, a restart.  `NotReady` is for what somebody must
mend: a password, a missing right, a missing topic.  The client reports a refused password only through its error
callback (`Reports`), while the request itself times out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tailrace.errors import NotReady, Rejected, TailraceError, Unavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

AUTHENTICATION = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"})
SECURITY = frozenset({"_SSL", "ILLEGAL_SASL_STATE"})
RIGHTS = frozenset({
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
})  # fmt: skip
MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})
UNREADABLE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})
"""The partition does not have the requested offset."""
SETTINGS = frozenset({"_INVALID_ARG", "INVALID_CONFIG", "POLICY_VIOLATION", "INVALID_REPLICATION_FACTOR",
                      "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "INVALID_TRANSACTION_TIMEOUT",
                      "TOPIC_EXCEPTION", "INVALID_PARTITIONS"})  # fmt: skip
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
UNREACHED = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"})
REFUSED = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "RECORD_LIST_TOO_LARGE", "INVALID_TIMESTAMP"})
"""The broker refuses this record every time."""


class Reports:
    """The last errors that the client gave to its error callback."""

    def __init__(self) -> None:
        self._told: deque[KafkaError] = deque(maxlen=16)

    def __call__(self, error: KafkaError) -> None:
        """Keep an error.  The client calls this."""
        self._told.append(error)

    def clear(self) -> None:
        """Forget all errors, because a new attempt begins."""
        self._told.clear()

    def worst(self) -> KafkaError | None:
        """The most telling error, a refused password or certificate before a lost connection; None if there is none."""
        for names in (AUTHENTICATION, SECURITY, frozenset({"_RESOLVE"})):
            for error in self._told:
                if error.name() in names:
                    return error
        return self._told[-1] if self._told else None


def failed(error: KafkaError, where: str, doing: str, reports: Reports, what: str = "") -> TailraceError:
    """tailrace's error for an error of the client, or for the reported error that caused it.  `doing` says what was
    attempted, `what` with which topic."""
    told = reports.worst()
    if told is not None and (told.name() in AUTHENTICATION | SECURITY or error.name() in UNREACHED):
        error = told
    name, said = error.name(), f"Kafka at {where}, {doing}: {_first_line(error)}"
    if name in AUTHENTICATION:
        return NotReady(f"{said}; check user, password, mechanism and security")
    if name in SECURITY:
        return NotReady(f"{said}; check security, and ca for an authority of your own")
    if name in RIGHTS:
        return NotReady(f"{said}; {_grant(name, what)}")
    if name in MISSING:
        return NotReady(f"{said}{f' ({what})' if what else ''}; make the topic, or name another")
    if name in SETTINGS or (error.fatal() and name not in FENCED):
        return NotReady(said)
    return Unavailable(f"{said}; is a broker running there, and do brokers and security in the settings fit it?")


def rejected(error: KafkaError, topic: str, namespace: str, key: bytes | None) -> Rejected:
    """The error for a record that the topic does not take, on its way into the topic `namespace`."""
    id = (key or b"").decode(errors="replace")
    return Rejected(
        f"the topic {topic} of Kafka does not take the record of {id!r}: {error.str().removeprefix('Broker: ')}; "
        "for a large one raise max.message.bytes of the topic",
        namespace=namespace,
        id=id,
    )


def _first_line(error: KafkaError) -> str:
    """The first line of an error's text, without the client's account of its attempts."""
    text = str(error.str()).partition(" (after ")[0]
    lines = text.splitlines()
    return lines[0].strip().removeprefix("Broker: ").rstrip(".:") if lines else error.name()


def _grant(name: str, what: str) -> str:
    """The command that grants the missing right."""
    command = "kafka-acls.sh --bootstrap-server … --add --allow-principal User:NAME"
    if name.startswith("TRANSACTIONAL"):
        which = "--transactional-id tailrace. --resource-pattern-type prefixed"
        return f"{command} --operation Write --operation Describe {which}"
    if name.startswith("GROUP"):
        return f"{command} --operation Read --group NAME"
    if name.startswith("CLUSTER"):
        return f"{command} --operation Create --operation Describe --operation IdempotentWrite --cluster"
    return f"{command} --operation Read --operation Write --operation Describe --topic '{what or '*'}'"
