"""OpenSearch and Elasticsearch, as a source (copied shard by shard) and as a sink (bulk requests with versions).

Read in this order: settings, cluster, errors, names.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.opensearch.settings import SearchSink, SearchSource
from tailrace.adaptors.opensearch.sink.writer import SearchWriter
from tailrace.adaptors.opensearch.source.reader import SearchReader

adaptor = Adaptor(
    name="opensearch",
    about="OpenSearch 1.0 and newer, Elasticsearch 7.10 and newer: indexes copied shard by shard; "
    "written an index for each namespace, idempotent by id",
    reader=SearchReader,
    reader_settings=SearchSource,
    writer=SearchWriter,
    writer_settings=SearchSink,
    limits="changes of an index cannot be followed; not carried: settings, mappings and routing of an index that is "
    "copied, renames of a namespace (docs/guide/search.md)",
    example='uri = "https://tailrace:${SEARCH_PASSWORD}@search.example.com:9200"\ncreate = true',
)
