"""One adapter a file, imported only when a model string names it."""
