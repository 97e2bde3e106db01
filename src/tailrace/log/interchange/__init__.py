"""Topics as files that other systems read and write: folders of segments, segments of entries.

Used from outside: folder.
Read in this order: folder, segment, entry.
"""
