"""Decides how many replicas of a stage should run, by what listeners notice: late first audio and short leads.

    pressure = the greatest of   first audio p95 / its limit,   share of short leads / its limit,   load / its limit

Above 1, replicas are added in proportion. Replicas are removed one at a time, after the pressure would have
stayed below 1 without them for ``scale_in_after_s``; only a replica without streams ends. The queue's length is
no input: a long queue of streams that are all in time is no reason to scale.

Pure: ``desired_replicas`` is a function of a report and the state that the call before returned. No clock, no
I/O; times are monotonic seconds.
"""
