"""Environment servers: who owns an episode, from admission to clean-up."""
