"""Collections: which of them can be read, by the namespace database.collection."""

from __future__ import annotations

import re
from typing import Any

from tailrace.adaptors.contract import Namespace
from tailrace.adaptors.mongodb.deployment import SYSTEM, Deployment
from tailrace.errors import NotThere

_TEMPORARY = re.compile(r"tmp\.agg_out\..*|tmp[^.]{5}\.renameCollection|tmp\.mr\..*|system\..*")
"""What the server itself makes: `$out` and a rename between databases write there, and give it its name at the end."""


def is_read(database: str, collection: str) -> bool:
    """Whether a collection is one of the user's."""
    return database not in SYSTEM and not _TEMPORARY.fullmatch(collection)


def split(namespace: str) -> tuple[str, str]:
    """Database and collection; a collection's name may have dots."""
    database, _, collection = namespace.partition(".")
    return database, collection


def listing(deployment: Deployment) -> list[Namespace]:
    """Every collection of the database that the uri names, or of all: no views, and no time series, which have no
    change stream."""
    with deployment.guarded("listing collections"):
        client = deployment.client
        names = [deployment.database] if deployment.database else client.list_database_names()
        found = []
        for database in names:
            for one in client[database].list_collections(filter={"type": "collection"}, nameOnly=True):
                if is_read(database, one["name"]):
                    found.append(Namespace(f"{database}.{one['name']}"))
    return found


def check_there(deployment: Deployment, namespace: str) -> Any:
    """`NotThere` if a collection is gone."""
    database, collection = split(namespace)
    with deployment.guarded(f"looking for {namespace}"):
        if not list(deployment.client[database].list_collections(filter={"name": collection}, nameOnly=True)):
            raise NotThere(f"there is no collection {namespace} (any more)")
