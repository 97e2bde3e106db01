"""Commands for pipelines: writing one, running it, how it is, and what operators do to it.

Read in this order: trial, run, run_view, named_pipeline, status, commit_log, offsets, dead_letters, delivery.
"""
