"""The remoting port of a server: connections, their frames and the answers. RocketMQ's rules are in ``processor``.

A request passes ``inbound`` (bytes to frames), ``connection`` (order), ``session`` (frame to answer) and
``processor.dispatch``; the answer passes them in reverse order. ``response_cache`` answers repeated requests,
``long_answers`` computes those that walk all topics or brokers, and ``decoder`` decodes large registrations in another
process. Only ``server`` imports this package.
"""
