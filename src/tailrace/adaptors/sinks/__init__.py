"""What every sink shares: which run may write, what a batch comes down to, which row was refused, errors about a
missing table, collection or topic, and lists and maps as document databases hold them.

Used from outside: fencing, folding, refusal, missing_targets, nested_values.
Read in this order: fencing, folding, refusal, missing_targets, nested_values.
"""
