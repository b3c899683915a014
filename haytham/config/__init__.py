"""Configuration: workflows, agent files and policies, as people write them."""
