"""A guided run of less than a minute: brokers appear, die, fall silent and return, and the history tells why."""
