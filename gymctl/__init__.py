"""NeMo Gym configs in, one container per server, rollouts and metrics out. Importing it does nothing."""

__version__ = "0.1.0"
