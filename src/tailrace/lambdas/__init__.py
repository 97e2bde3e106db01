"""AWS Lambda functions: the indexer of a home's event store, and a consumer of one of its topics.

`deploy/aws` deploys both.  Each module has a `handler`, and says in its docstring which environment it reads.
`indexer` needs neither Arrow nor S3, and imports neither: that keeps its bundle small and its cold start short.

Read `stream_event` (what Lambda delivers), `indexer`, then `consumer`.

Read in this order: indexer, consumer, stream_event.
"""
