"""The SLO report: from the history to figures, and from those to one page."""
