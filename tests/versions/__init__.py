"""Homes that earlier versions wrote: every later version opens, reads, scrubs and continues them.

    python -m tests.versions.write tests/versions/homes/0.1-2026-11.zip

    python -m tests.versions.write_pipeline tests/versions/pipelines/0.1-2026-11.zip

write one with the code that is checked out.  Add one when a stored format grows; never write an old one again.
"""
