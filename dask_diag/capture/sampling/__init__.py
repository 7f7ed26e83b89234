"""What looks at tasks while they run: when, at what they wait for, and at their stacks."""
