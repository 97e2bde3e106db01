"""Coordination: guarded writes, leases, and groups of processes that share work.

Used from outside: guard, rules, lease, position, process, member, watch, units, source, consumer,
handler_settings, failure, dead_letters, names, settings, reach_marks, bell.
Read in this order: guard, rules, lease, position, process, member, assignment, watch, units, source, task, sharing,
handler_settings, consumer, failure, dead_letters, names, settings, reach_marks, bell.
"""
