"""The checkpoint manager."""
