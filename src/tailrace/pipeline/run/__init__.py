"""The runner of pipelines on Spark.

Used from outside: runner.
"""
