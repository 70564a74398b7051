"""The wire: frames, commands and headers of RocketMQ's remoting protocol. Pure, and ignorant of routes."""
