"""A guided run of two minutes: brokers appear, die, fall silent and return, and the history tells why."""
