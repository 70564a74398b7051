"""What other timeouts would have done: the fold itself, run again over the log with each of them."""
