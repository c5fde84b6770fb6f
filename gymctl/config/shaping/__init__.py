"""What turns the merged tree into the one that is resolved: directives, another agent, old names."""
