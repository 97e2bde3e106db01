"""What every sink shares: which run may write, what a batch comes down to, which row was refused, what to say of a
table, collection or topic that is missing.

Used from outside: fencing, folding, refusal, places.
Read in this order: fencing, folding, refusal, places.
"""
