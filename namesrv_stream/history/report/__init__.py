"""The availability report: figures from the history, as tables, JSON or one HTML page.

It is a sub-package because only the command ``report`` uses it, and nothing outside depends on its figures.
"""
