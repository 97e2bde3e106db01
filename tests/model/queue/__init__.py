"""The queue's protocol as a model, beside the log's: the same scheduler and faults, other items and rules.

Read `items` (what is stored and how a window moves), `rules` (the guarded writes), `actors` (workers, the clock holder,
pushers, the supervisor), `truth` (what must hold after every step), `scenarios` (who acts together; the mutants).
"""
