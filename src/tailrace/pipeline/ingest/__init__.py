"""Ingestion: from the source into the commit log.

Used from outside: commit_log, reader_state, copying, following, read_ahead, coalesce.
Read in this order: commit_log, reader_state, copying, following, committer, read_ahead, coalesce.
"""
