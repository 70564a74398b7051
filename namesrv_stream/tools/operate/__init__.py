"""Commands for operators: status, settings at run time, the mass-expiry guard, skew between servers, dead letters.

They read the tables and Kafka, and query servers over HTTP. They make a change by writing an event to the log. Changes
over remoting, as mqadmin makes them, are in ``client.commands``. ``cli`` registers the commands.
"""
