"""A pipeline at work on Spark.

Used from outside: runner.
"""
