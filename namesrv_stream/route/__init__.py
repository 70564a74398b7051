"""What the name server knows: events in, changes out, the route table between. Pure: no I/O, no wire, no Spark."""
