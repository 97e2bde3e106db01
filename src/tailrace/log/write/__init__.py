"""Records into the log.  A producer buffers records, `placement` stores them as a chunk, and `append` makes the log
refer to it by one guarded write.

Used from outside: producer, buffer, record_batch, input, acknowledgement, group_commit, linger, async_producer,
placement, append, attempt, lookup, guarded_append, named_producer, numbered_append, source_append, joint_append,
staged_chunk, repartition_stored.
Read in this order: producer, buffer, record_batch, key_hashes, input, acknowledgement, group_commit, linger,
async_producer, placement, append, attempt, lookup, guarded_append, named_producer, numbered_append, source_append,
joint_append, staged_chunk, repartition, repartition_stored.
"""
