"""Command line: `tstore` and what the job scripts print."""
