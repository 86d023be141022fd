"""The report of a store: its numbers, as text and as a page."""
