"""What all commands share: how a function becomes a command, the options, the home it works on, what is printed.

Used from outside: command, options, session, values, output, progress, spark_job.
Read in this order: command, options, session, values, output, progress, spark_job.
"""
