"""What is told about a configuration: who wrote a value, what is wrong or doubtful, what differs."""
