"""MongoDB as a sink: tasks stage operations, and transactions apply them together with the offsets.

Used from outside: writer.
Read in this order: writer, operations, values, stage, apply, state.
"""
