"""The doctor: checks an installation from Java to the tables, and says what to do about each problem.

It changes nothing, except for one probe object in an object store. Checks that a process makes at its own
start are not here but in that process. Only ``cli`` imports it.
"""
