"""Reading: records from an offset or a time on, page by page, chunk by chunk, without ever skipping any.

Used from outside: reader, seek, pages, fetched, gaps, watch.
Read in this order: reader, seek, pages, poll, fetched, gaps, watch.
"""
