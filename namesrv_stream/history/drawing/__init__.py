"""Charts over time as inline SVG: for the report, and for the plots of commands."""
