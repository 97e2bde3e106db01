"""The runner of pipelines on Spark.

Used from outside: runner.
Read in this order: runner.
"""
