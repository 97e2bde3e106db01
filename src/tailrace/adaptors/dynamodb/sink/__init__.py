"""DynamoDB as a sink: tasks stage operations, and transactions carry them out together with the offsets.

Used from outside: writer.
Read in this order: writer, operations, values, stage, target_tables, apply, state.
"""
