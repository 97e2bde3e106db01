"""The machinery below a run: Spark sessions and jobs, the homes that tasks open, and the status of a run.

Used from outside: engine, spark_job, open_topics, reach, trouble, status, background.
Read in this order: engine, spark_job, daemon, open_topics, reach, trouble, status, background.
"""
