"""Pipelines: copy databases, then follow them, on Spark."""
