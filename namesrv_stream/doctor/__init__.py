"""Looks a set-up over, from Java to the tables, and says what to do about what is wrong. It changes nothing."""
