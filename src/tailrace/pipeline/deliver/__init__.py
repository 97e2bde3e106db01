"""Delivery: from the commit log into the sinks, each writer at its own pace and with its own offsets.

Used from outside: outlet, delivery, batch, offsets, claim, command_delivery, command_marks, redelivery, dead_letters.
Read in this order: outlet, backlog, delivery_jobs, delivery, batch, offsets, saved_offsets, claim, agreement,
standing_commands, command_delivery, command_marks, failed_batch, redelivery, dead_letters, pacing,
sink_display.
"""
