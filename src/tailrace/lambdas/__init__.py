"""AWS Lambda functions: the indexer of a home's event store, and a consumer of one of its topics.

`deploy/aws` deploys both.  Each module has a `handler`; its docstring lists the environment variables that it reads.
`indexer` imports neither Arrow nor the S3 storage, which keeps its bundle small and its cold start short.

Read `stream_event` (what Lambda delivers), `indexer`, then `consumer`.

Read in this order: indexer, consumer, stream_event.
"""
