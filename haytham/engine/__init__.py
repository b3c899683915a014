"""The engine: runs the agents of a session, phase by phase."""
