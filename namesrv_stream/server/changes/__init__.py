"""Committed changes for whoever follows them, from any position, without a gap and never back."""
