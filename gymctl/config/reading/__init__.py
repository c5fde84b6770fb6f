"""What a configuration is read from: files and what they include, names, overrides."""
