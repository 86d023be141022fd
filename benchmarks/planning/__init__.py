"""The paper's evaluation of sketches, predictions and planners, on a hub of one's own (§6)."""
