"""The use cases, for every front end: what a command does can be done from Python with the same effect."""
