class Policy:
    """A role's rules for a batch, in addition to those of every reader. This base class has none."""

class Choice(Policy):
    """Picks batches. The scan passes over the others."""
