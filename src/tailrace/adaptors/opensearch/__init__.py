"""OpenSearch and Elasticsearch, as a sink (bulk requests with external versions).

Read in this order: settings, cluster, errors, names.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink.writer import SearchWriter

adaptor = Adaptor(
    name="opensearch",
    about="OpenSearch 1.0 and newer, Elasticsearch 7.10 and newer: an index for each namespace, idempotent by id",
    writer=SearchWriter,
    writer_settings=SearchSink,
    limits="not carried: renames of a namespace, which leave its index as it is (docs/guide/search.md)",
    example='uri = "https://tailrace:${SEARCH_PASSWORD}@search.example.com:9200"\ncreate = true',
)
