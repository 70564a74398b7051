"""Route queries answered beside the interpreter: a thread of C, what it knows, and the connections lent to it.

``express.c`` is the thread, ``answers.c`` what it knows, ``query.c`` how it reads a question; ``library.py`` is all of
that as Python calls it, ``lane.py`` what the server uses. Why: docs/adr/0041.
"""
