"""Files as a source: the reader copies them in pieces, and then follows them as they grow.

Used from outside: reader, parquet, arrow_stream, bounded.
Read in this order: reader, listing, follower, file_position, lines, json_lines, csv_lines, parquet, parquet_pages,
arrow_stream, bounded.
"""
