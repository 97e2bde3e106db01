"""What every sink shares: which run may write, what a batch comes down to, which row was refused, what to say of a
table, collection or topic that is missing, and lists and maps as document databases hold them.

Used from outside: fencing, folding, refusal, missing_targets, nested_values.
Read in this order: fencing, folding, refusal, missing_targets, nested_values.
"""
