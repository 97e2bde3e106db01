"""A pipeline at work on Spark.

Used from outside: runner, engine, spark_job, open_topics, status, background.
Read in this order: runner, engine, spark_job, daemon, open_topics, reach, status, background.
"""
