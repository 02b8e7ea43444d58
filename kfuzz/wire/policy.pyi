class Policy:
    """What a role asks of a batch beside what every reader asks. This one asks nothing."""

class Choice(Policy):
    """Picks batches, and lets the scan go by the others."""
