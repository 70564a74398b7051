"""The console at ``/``: pages for people, made here and kept fresh by a little script of ours."""
