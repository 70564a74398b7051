"""The demo: a guided run of less than a minute, in which brokers register, die, freeze and return.

It starts the product and the brokers as child processes, as a user would, and reads the result with Polars; it uses no
other interface of the product. Only ``cli`` imports it.
"""
