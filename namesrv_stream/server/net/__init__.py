"""The network side of a server: connections, the frames that they bring, and what these are answered.

A request goes through ``connection`` and ``inbound`` (bytes to frames), ``requests`` (their order), ``session`` (a
frame to its answer), ``processor.dispatch`` (RocketMQ's rules) and back. ``response_cache`` answers requests that were
answered before, ``large_requests`` orders those that take long, and ``registration_decoder`` decodes the largest ones
in another process.
"""
