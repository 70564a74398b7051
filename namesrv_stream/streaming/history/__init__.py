"""The history process: it turns Kafka's records and the rows of ``route_changes`` into tables for analysts.

It is a sub-package because it shares only the code of the Spark session with the job.
"""
