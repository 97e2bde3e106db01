"""Interchange: topics as files that other systems read and write, as folders of segments and segments of entries.

Used from outside: folder.
Read in this order: folder, segment, entry.
"""
