"""What writers and readers of the tables must agree on: names, columns, properties, and the conversion of rows.

It is a sub-package because it does not need Delta, so that Spark's tasks can import it cheaply.
"""
