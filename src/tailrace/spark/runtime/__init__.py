"""Runtime: what a process needs before Spark runs in it: Java, pyspark, and homes that stay open from task to task.

Used from outside: java, installed, class_archive, homes.
Read in this order: java, installed, class_archive, homes.
"""
