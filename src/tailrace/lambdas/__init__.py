"""AWS Lambda functions: the indexer of a home's event store, and a consumer of one of its topics.

`deploy/aws` deploys both.  Each module has a `handler`; its docstring lists the environment variables that it reads.
`indexer` imports neither Arrow nor the S3 storage, which keeps its bundle small and its cold start short.

`stream_event` is what Lambda delivers of a table's changes.

Read in this order: stream_event, indexer, consumer.
"""
