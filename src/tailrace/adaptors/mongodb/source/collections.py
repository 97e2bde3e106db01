"""Collections: lists those that can be read, under the namespace database.collection."""

from __future__ import annotations

import re
from typing import Any

from tailrace.adaptors.contract import Namespace
from tailrace.adaptors.mongodb.deployment import SYSTEM, Deployment
from tailrace.errors import NotThere

_TEMPORARY = re.compile(r"tmp\.agg_out\..*|tmp[^.]{5}\.renameCollection|tmp\.mr\..*|system\..*")
"""Names that the server gives: `$out` and a rename across databases write under one, and rename the result at the end.
"""


def is_read(database: str, collection: str) -> bool:
    """Return whether a collection is a user's, not the server's own."""
    return database not in SYSTEM and not _TEMPORARY.fullmatch(collection)


def split(namespace: str) -> tuple[str, str]:
    """Return the database and the collection of a namespace; a collection's name may have dots."""
    database, _, collection = namespace.partition(".")
    return database, collection


def listing(deployment: Deployment) -> list[Namespace]:
    """Return the collections of the database that the uri names, or of all databases.

    Views and time series are left out, because they have no change stream."""
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
    """Raise `NotThere` if a collection does not exist."""
    database, collection = split(namespace)
    with deployment.guarded(f"looking for {namespace}"):
        if not list(deployment.client[database].list_collections(filter={"name": collection}, nameOnly=True)):
            raise NotThere(f"there is no collection {namespace} (any more)")
