"""The native lane: a thread in C that answers known route queries without the interpreter; see README.md here."""
