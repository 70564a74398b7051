"""What operators do beside the data path: change settings in the log, look who serves what, let held brokers go."""
