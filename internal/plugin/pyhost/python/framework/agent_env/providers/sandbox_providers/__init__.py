"""What makes sandboxes."""
