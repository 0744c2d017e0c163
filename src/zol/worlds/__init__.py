"""Where behaviour happens: batched simulators."""
