"""Config -> typed Compose Project -> YAML (the top-level compose/ folder holds static fragments)."""
