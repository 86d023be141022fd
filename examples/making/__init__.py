"""How `make_hub.py` makes the example hub."""
