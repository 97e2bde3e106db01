"""Storage: the contract that a home's backends keep, and what they share.  A backend has objects (immutable bytes under
unique names) and tables (items under conditions); `sqlite` and `local` are the embedded ones, `memory` keeps everything
in this process, `aws` has DynamoDB, its streams and the buckets.

Used from outside: tables, objects, changes, calls, keys, limits, forks, randomness.
Read in this order: tables, objects, changes, calls, keys, limits, evaluation, forks, randomness, spans, expressions.
"""
