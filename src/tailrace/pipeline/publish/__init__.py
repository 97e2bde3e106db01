"""Publishing: a topic as a table of a lake, without Spark and without a commit log.

Used from outside: publication.
Read in this order: publication.
"""
