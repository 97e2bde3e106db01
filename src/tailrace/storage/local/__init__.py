"""Local storage: objects on this machine's disk, and the few things that embedded storage asks of the operating system.

Used from outside: disk, files, os_errors, mounts.
Read in this order: disk, files, os_errors, mounts.
"""
