"""Adaptors: the ends of a pipeline, one file per system.

Other packages add theirs by the entry point group `tailrace.adaptors`."""
