"""What makes sandboxes and environments."""
