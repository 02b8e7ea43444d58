"""From batch to batch through a buffer (``scan``), with a role's rules, transactions, and the search after damage."""
