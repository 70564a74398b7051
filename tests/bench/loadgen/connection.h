/*
 * Non-blocking TCP connections to the name server, split into frames. An error closes a connection; it is not reopened.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer {
    char *bytes;
    size_t length, capacity;
};

struct connection {
    int fd; /* -1 once it is given up */
    struct buffer in, out;
    size_t out_sent;
    bool waits_for_writing;
};

/* Errors of a connection, which belong to no kind of request. */
extern struct connection_errors {
    uint64_t mismatched;   /* answers to what was not outstanding there */
    uint64_t malformed;    /* bytes that are no frame, or no answer with a JSON header */
    uint64_t disconnected; /* closed by the server */
} connection_errors;

/* The longest time between two checks of the sockets: an answer may have waited so long for this program. */
extern uint64_t longest_turn_ns;

/* Defined in traffic.c: called for one whole answer without its length, and for the end of a connection. */
void answer_arrived(struct connection *connection, const char *payload, uint32_t total, uint64_t now);
void connection_ended(struct connection *connection);

/* Resolves the server's address; must be called once, before all other functions of this file. */
void find_server(const char *host, const char *port);
void open_connection(struct connection *connection);

/* Counts one of `connection_errors` and closes the connection. */
void give_up(struct connection *connection, uint64_t *error);

/* Returns room for this number of bytes at the end of the output; the caller adds them to its length. */
char *room_to_write(struct connection *connection, size_t bytes);
void flush(struct connection *connection);

/* Handles all received data of all connections; waits for it until `at_ns` at most. */
void poll_connections(uint64_t at_ns);

#endif
