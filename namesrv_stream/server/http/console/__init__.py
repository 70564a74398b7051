"""The console at ``/``: read-only pages, rendered here and updated by a small script. Only ``http`` imports it."""
