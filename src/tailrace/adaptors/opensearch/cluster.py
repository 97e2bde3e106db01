"""The cluster: requests to it, and questions about its indexes.

The client's own retries are off, because a request without an answer may have been carried out.  Its warnings are off,
too: they repeat the server's log."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec

from tailrace.adaptors.opensearch.errors import failed
from tailrace.adaptors.opensearch.settings import SearchSettings
from tailrace.errors import BadSetting, NotInstalled, NotReady, NotThere, Unavailable

MIN_VERSIONS = {"opensearch": (1, 0), "elasticsearch": (7, 10)}
MAX_NAMES_PER_REQUEST = 50
"""How many indexes one request asks for: their names are in its URL."""


class Index(NamedTuple):
    """A concrete index, to which a name or an alias leads."""

    name: str
    uuid: str
    settings: Mapping[str, Any]
    mappings: Mapping[str, Any]


class Cluster:
    """One cluster, reached through some of its nodes.  Connects with the first request."""

    def __init__(self, settings: SearchSettings) -> None:
        if importlib.util.find_spec("opensearchpy") is None:
            raise NotInstalled("opensearch needs a package: pip install 'tailrace[opensearch]'")
        self._settings = settings

    @cached_property
    def _hosts(self) -> list[dict[str, Any]]:
        hosts = []
        for one in self._settings.uri.split(","):
            try:
                parts = urlsplit(one.strip())
                if parts.scheme not in ("http", "https") or not parts.hostname:
                    raise ValueError
                port = parts.port or (443 if parts.scheme == "https" else 9200)
            except ValueError:
                raise BadSetting("uri: not as https://user:password@host:9200") from None
            host: dict[str, Any] = {"host": parts.hostname, "port": port, "use_ssl": parts.scheme == "https"}
            if parts.username is not None:
                host["http_auth"] = (unquote(parts.username), unquote(parts.password or ""))
            if parts.path.strip("/"):
                host["url_prefix"] = parts.path.strip("/")
            hosts.append(host)
        return hosts

    @property
    def where(self) -> str:
        """The hosts and ports, for messages; never a password."""
        return ",".join(f"{host['host']}:{host['port']}" for host in self._hosts)

    @cached_property
    def _client(self) -> Any:
        from opensearchpy import OpenSearch, Urllib3HttpConnection

        class Quiet(Urllib3HttpConnection):  # type: ignore[misc, unused-ignore]
            """A connection that logs and warns nothing: every failure is raised as tailrace's error."""

            def _raise_warnings(self, *_: Any) -> None: ...
            def log_request_fail(self, *_: Any, **__: Any) -> None: ...
            def log_request_success(self, *_: Any, **__: Any) -> None: ...

        settings = self._settings
        given: dict[str, Any] = {"ca_certs": settings.ca} if settings.ca else {}
        if settings.api_key:
            given["headers"] = {"Authorization": f"ApiKey {settings.api_key}"}
        return OpenSearch(
            self._hosts,
            connection_class=Quiet,
            timeout=settings.timeout,
            max_retries=0,
            retry_on_timeout=False,
            pool_maxsize=32,
            http_compress=False,
            **given,
        )

    # -- asking
    def ask(
        self, method: str, path: str, body: Any = None, *, doing: str, index: str = "", **params: Any
    ) -> dict[str, Any]:
        """Send one request and decode its JSON answer.  Raises tailrace's error for a failed request."""
        answer = self.raw(method, path, body, doing=doing, index=index, **params)
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            raise Unavailable(
                f"OpenSearch at {self.where}, {doing}: the answer is not whole, or not OpenSearch's; does the uri name "
                "a proxy, or another server?"
            ) from None

    def raw(self, method: str, path: str, body: Any = None, *, doing: str, index: str = "", **params: Any) -> bytes:
        """As `ask`, but returns the answer's bytes."""
        from opensearchpy.exceptions import ConnectionError, OpenSearchException

        sent = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        transport = self._client.transport
        node = transport.get_connection()
        try:
            _, _, answer = node.perform_request(method, path, params or None, sent)
        except (OpenSearchException, OSError) as error:
            if isinstance(error, ConnectionError):
                transport.mark_dead(node)
            raise failed(error, self.where, doing, index) from None
        return bytes(answer.encode("utf-8", "surrogatepass"))

    def check_version(self) -> None:
        """Raise `NotReady` for a server that is too old or is neither product.  This also checks the password."""
        if self.version < MIN_VERSIONS[self.distribution]:
            shown = ".".join(map(str, self.version))
            raise NotReady(f"{self.distribution} at {self.where} is version {shown}; 1.0 (7.10) and newer can be used")

    @cached_property
    def _about(self) -> Mapping[str, Any]:
        try:
            found = self.ask("GET", "/", doing="connecting")
        except NotReady:
            # Elasticsearch embedded in another program does not answer at its root.
            found = {"version": self._node_version()}
        version = found.get("version")
        if not isinstance(version, dict) or "number" not in version:
            raise NotReady(f"what answers at {self.where} is not OpenSearch or Elasticsearch; is the uri right?")
        return version

    def _node_version(self) -> Mapping[str, Any]:
        nodes = self.ask("GET", "/_nodes", doing="connecting", filter_path="nodes.*.version").get("nodes") or {}
        return {"number": min((str(node["version"]) for node in nodes.values()), default="0")}

    @property
    def distribution(self) -> str:
        """The product: opensearch or elasticsearch."""
        return "opensearch" if self._about.get("distribution") == "opensearch" else "elasticsearch"

    @property
    def version(self) -> tuple[int, ...]:
        """The first two numbers of the version."""
        parts = str(self._about["number"]).split(".")
        return tuple(int(part) for part in parts[:2] if part.isdigit())

    # -- indexes
    def indexes(self, name: str) -> list[Index]:
        """The concrete indexes that a name or an alias stands for; none if it does not exist."""
        try:
            found = self.ask("GET", f"/{path(name)}", doing=f"looking for {name}", index=name, flat_settings="true")
        except NotThere:
            return []
        return [
            Index(str(one), str(given["settings"]["index.uuid"]), given["settings"], given.get("mappings") or {})
            for one, given in found.items()
        ]

    def uuids(self, names: Iterable[str]) -> dict[str, str]:
        """The uuid of each of these concrete indexes that exists."""
        out, left = {}, sorted(set(names))
        for at in range(0, len(left), MAX_NAMES_PER_REQUEST):
            found = self.ask(
                "GET",
                f"/{','.join(map(path, left[at : at + MAX_NAMES_PER_REQUEST]))}/_settings/index.uuid",
                doing="looking for its indexes",
                flat_settings="true",
                ignore_unavailable="true",
            )
            out.update({str(name): str(one["settings"]["index.uuid"]) for name, one in found.items()})
        return out

    def cat(self, pattern: str) -> list[dict[str, str]]:
        """The open indexes that match a pattern and are not hidden, with about how many documents each has."""
        raw = self.raw(
            "GET", f"/_cat/indices/{quote(pattern, safe='*')}", doing="looking for indexes", format="json",
            h="index,docs.count", expand_wildcards="open", s="index",
        )  # fmt: skip
        return msgspec.json.decode(raw, type=list[dict[str, Any]])

    def is_empty(self, name: str) -> bool:
        """Whether an index has no documents, or does not exist.  Refreshes it first, to see documents just written."""
        query = {"size": 1, "_source": False, "query": {"match_all": {}}}
        try:
            self.ask("POST", f"/{path(name)}/_refresh", doing=f"refreshing {name}", index=name)
            return not self.search(name, query, f"looking into {name}")["hits"]["hits"]
        except NotThere:
            return True

    def search(self, name: str, query: Mapping[str, Any], doing: str) -> dict[str, Any]:
        """Search, and raise unless all shards have answered."""
        at = f"/{path(name)}/_search" if name else "/_search"
        return self.ask("POST", at, dict(query), doing=doing, index=name, allow_partial_search_results="false")

    def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            self.__dict__.pop("_client").close()


def path(name: str) -> str:
    """A name or an id as a part of the path of a request to the cluster: percent-encoded."""
    return quote(name, safe="")
