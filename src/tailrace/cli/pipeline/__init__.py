"""Commands for pipelines: writing one, running it, its status, and the actions of operators on it.

Read in this order: trial, run, run_view, named_pipeline, status, commit_log, offsets, dead_letters, delivery.
"""
