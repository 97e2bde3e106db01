"""Parts that all commands share: how a function becomes a command, the options, the home, and the output.

Used from outside: command, options, session, values, output, progress, spark_job.
Read in this order: command, options, session, values, output, progress, spark_job.
"""
