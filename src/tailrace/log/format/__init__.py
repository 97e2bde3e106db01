"""What a topic stores: chunks of records, and the head and pages that refer to them.  Each has a page in docs/formats.

Used from outside: chunk, partition_run, head, manifest, run, arrow_message.
Read in this order: chunk, partition_run, head, manifest, run, projection, arrow_message.
"""
