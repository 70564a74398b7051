"""The remoting port of a server: connections, their frames and the answers. RocketMQ's rules are in ``processor``.

A request passes ``connection`` and ``inbound`` (bytes to frames), ``requests`` (order), ``session`` (frame to answer)
and ``processor.dispatch``; the answer passes them in reverse order. ``response_cache`` answers repeated requests.
``large_requests`` schedules the large ones, and decodes the largest in another process. Only ``server`` imports this
package.
"""
