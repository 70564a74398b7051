"""Charts over time as inline SVG, for the report and the plots of commands.

It is a sub-package because it knows charts, colours and HTML templates, but no SQL and no tables.
"""
