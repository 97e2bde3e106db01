"""Target indexes: finds the index of each namespace, and makes it or adds mappings where the settings allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tailrace.adaptors.contract import Who
from tailrace.adaptors.opensearch.cluster import Cluster, Index, path
from tailrace.adaptors.opensearch.names import index_name
from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink import mapping
from tailrace.adaptors.opensearch.sink.operations import Unit
from tailrace.adaptors.opensearch.sink.state import Written, create
from tailrace.adaptors.sinks import missing_targets
from tailrace.errors import NotReady


def moved(who: Who, namespace: str, before: str, now: str) -> NotReady:
    """The error for settings that name another index than the one that a namespace was written to."""
    return NotReady(
        f"{namespace} was written to the index {before}, and index = … now says {now}, which would get only what comes "
        f"from now on. `tailrace offset delete {who.pipeline} {who.writer} --why …` has everything delivered into it"
    )


BLOCKS = ("index.blocks.read_only", "index.blocks.write")


class TargetIndexes:
    """The indexes of one sink."""

    def __init__(self, cluster: Cluster, settings: SearchSink) -> None:
        self._cluster, self._settings = cluster, settings
        self._ready: dict[str, dict[str, Any]] = {}
        """By namespace the mappings that were compared with the index already."""

    def name(self, namespace: str) -> str:
        """The name of a namespace's index or alias."""
        return index_name(self._settings.index, namespace)

    def found(self, namespace: str) -> Index | None:
        """The index of a namespace; None if there is none.  `NotReady` if the name stands for several indexes."""
        name = self.name(namespace)
        found = self._cluster.indexes(name)
        if len(found) > 1 or any(one.name.startswith(".ds-") for one in found):
            raise NotReady(
                f"{name} stands for several indexes, or for a data stream, and a document that is there already may be "
                "in any of them; index = … names one index, or an alias of one"
            )
        return found[0] if found else None

    def prepare(self, units: Iterable[Unit], who: Who, known: Mapping[str, Written]) -> dict[str, Written]:
        """Prepare the indexes for these units, and return the indexes of all namespaces, with `filled` as it will be
        after the batch.  Makes missing indexes if the settings allow it, and adds mappings."""
        now = dict(known)
        owners = {one.concrete: name for name, one in known.items()}
        for unit in units:
            before = now.get(unit.namespace)
            if before is not None and before.name != unit.index:
                raise moved(who, unit.namespace, before.name, unit.index)
            if before is None or self._is_new(unit):
                made = self._ready_for(unit, who, before)
                before = Written(self.name(unit.namespace), made.name, made.uuid, before.filled if before else False)
                owner = owners.setdefault(made.name, unit.namespace)
                if owner != unit.namespace:
                    raise missing_targets.shared(unit.namespace, owner, f"the index {made.name}")
            filled = not unit.deletes and (unit.puts > 0 or before.filled)
            now[unit.namespace] = before._replace(filled=filled)
        return now

    def _is_new(self, unit: Unit) -> bool:
        """Whether the unit has mappings that were not yet compared with the index."""
        known = self._ready.get(unit.namespace)
        return known is None or any(known.get(name) != one for name, one in unit.mapping.items())

    def _ready_for(self, unit: Unit, who: Who, before: Written | None) -> Index:
        found = self.found(unit.namespace)
        if found is None:
            if before is not None:
                raise missing_targets.gone(who, unit.namespace, unit.index, "index")
            found = self._made(unit)
        else:
            self.check(found)
            self._map(unit, found)
        self._ready[unit.namespace] = self._ready.get(unit.namespace, {}) | unit.mapping
        return found

    def _made(self, unit: Unit) -> Index:
        settings = {
            "index.number_of_shards": self._settings.shards,
            "index.number_of_replicas": self._settings.replicas,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        body = {"settings": given, "mappings": {"properties": unit.mapping} if self._types else {}}
        if not self._settings.create:
            order = f"PUT /{unit.index} {msgspec.json.encode(body).decode()}"
            raise missing_targets.not_made(unit.namespace, "index", order)
        create(self._cluster, unit.index, body)
        found = self.found(unit.namespace)
        if found is None:
            raise NotReady(f"the index {unit.index} was made, and is gone again")
        return found

    @property
    def _types(self) -> bool:
        return self._settings.mappings == "types"

    def check(self, index: Index) -> None:
        """Raise `NotReady` for an index that takes no writes, may lose acknowledged ones, or keeps no _source."""
        for block in BLOCKS:
            if str(index.settings.get(block, "false")) == "true":
                order = f'PUT /{index.name}/_settings {{"{block}": null}}'
                raise NotReady(f"the index {index.name} is read-only ({block}); {order} lets it be written")
        if str(index.settings.get("index.translog.durability", "request")).lower() == "async":
            order = f'PUT /{index.name}/_settings {{"index.translog.durability": "request"}}'
            raise NotReady(
                f"the index {index.name} acknowledges what is not on its disk yet (index.translog.durability is async) "
                f"and would lose it with a node; {order}"
            )
        if (index.mappings.get("_source") or {}).get("enabled") is False:
            raise NotReady(
                f"the index {index.name} keeps no _source, so a change of single fields would lose the others; use an "
                "index that keeps it"
            )

    def _map(self, unit: Unit, index: Index) -> None:
        if not self._types:
            return
        lacking = mapping.missing(unit.mapping, index.mappings.get("properties") or {})
        if lacking:
            self._cluster.ask(
                "PUT",
                f"/{path(index.name)}/_mapping",
                {"properties": lacking},
                doing=f"adding fields to {index.name}",
                index=index.name,
            )

    def check_there(self, written: Mapping[str, Written], namespaces: Iterable[str], who: Who) -> None:
        """Raise if the index of one of these namespaces is not the one that was prepared.

        A write to a missing index makes OpenSearch create one.  So the writer calls this after a write: another uuid
        shows that this has happened."""
        asked = {name: written[name] for name in namespaces}
        uuids = self._cluster.uuids(one.concrete for one in asked.values())
        for namespace, one in asked.items():
            if uuids.get(one.concrete) != one.uuid:
                self._ready.pop(namespace, None)
                raise missing_targets.gone(who, namespace, one.concrete, "index")

    def is_lost(self, one: Written) -> bool:
        """Whether an index that was written to has been dropped, made again or emptied."""
        found = self._cluster.indexes(one.name)
        if not found:
            return True
        if all(index.name != one.concrete for index in found):  # an alias that now stands for another index
            return one.filled and self._cluster.is_empty(one.name)
        if all(index.uuid != one.uuid for index in found):
            return True
        return one.filled and self._cluster.is_empty(one.name)
