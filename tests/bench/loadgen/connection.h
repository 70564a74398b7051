/*
 * Non-blocking TCP connections to the name server, cut into frames. What is wrong with one closes it; nobody connects
 * anew.
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

/* Errors that belong to a connection, of which no kind of request can be told. */
extern struct connection_errors {
    uint64_t mismatched;   /* answers to what was not outstanding there */
    uint64_t malformed;    /* bytes that are no frame, or no answer with a JSON header */
    uint64_t disconnected; /* closed by the server */
} connection_errors;

/* The longest time from one look at the sockets to the next: so long an answer may have waited for us. */
extern uint64_t longest_turn_ns;

/* Given by traffic.c: one whole answer without its length; a connection's end. */
void answer_arrived(struct connection *connection, const char *payload, uint32_t total, uint64_t now);
void connection_ended(struct connection *connection);

/* Finds the server, once, before all else here. */
void find_server(const char *host, const char *port);
void open_connection(struct connection *connection);

/* Counts one of `connection_errors` and closes. */
void give_up(struct connection *connection, uint64_t *error);

/* Room for so many more bytes at the end of the output; the caller adds them to its length. */
char *room_to_write(struct connection *connection, size_t bytes);
void flush(struct connection *connection);

/* Handles what has come in on all connections; waits for it no longer than until `at_ns`. */
void poll_connections(uint64_t at_ns);

#endif
