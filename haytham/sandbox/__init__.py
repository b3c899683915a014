"""Templates and conditions that others wrote, rendered in a sandbox with counted and limited work."""

from haytham.sandbox.template import Fault, Names, TemplateFault, holds, inspect, inspect_condition, render

__all__ = ["Fault", "Names", "TemplateFault", "holds", "inspect", "inspect_condition", "render"]
