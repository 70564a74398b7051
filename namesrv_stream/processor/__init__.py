"""RocketMQ's request processors as pure functions: a request and what is known in, an answer and events out."""
