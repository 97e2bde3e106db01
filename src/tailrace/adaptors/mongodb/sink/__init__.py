"""MongoDB as a sink: tasks stage operations, and the driver applies them and stores the offsets in transactions.

Used from outside: writer.
Read in this order: writer, operations, values, stage, apply, state.
"""
