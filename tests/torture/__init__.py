"""Torture: a PostgreSQL full of awkward tables, writers that do everything to them, and kills of all that runs.

Afterwards every sink has, row by row, what the source has.  Read in this order:

    schema        the tables, and a value for every type
    writer        seeded writers: each owns some tables, and its seed alone says what it does to them
    actions       what writers do: rows, transactions, ALTER TABLE, tables that come and go
    killer        what is killed, and when: the run, either server, Spark's workers
    sinks         what each sink holds now, as rows of the source's own types
    comparison    the source and a sink, row by row
    scenario      all of it together, and what is printed when it ends badly
    known         what is left out because it is known to fail, and why
"""
