"""`namesrv-stream up`: everything on one machine, in the foreground, supervised."""
