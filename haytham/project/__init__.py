"""The project manager."""
