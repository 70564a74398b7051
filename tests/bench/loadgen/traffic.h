/*
 * Streams of requests, on one thread.
 *
 * A stream has connections, and `depth` users on each. Every user has at most one outstanding request: that is a closed
 * loop. Without a rate, a user sends the next request as soon as it has its answer. With a rate, requests are due at
 * regular intervals, and any idle user sends them. Their latency counts from the time at which they were due, so a
 * stalled server is charged with all requests that it delayed ("coordinated omission").
 *
 * A latency ends when the whole answer has been read, so it includes the time that this program itself needs.
 */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "workload.h"

enum { MAX_KINDS = 8 };

struct stream {
    uint32_t connections; /* of its own; 0 if all of its frames go over links */
    uint32_t depth;
    double rate; /* requests a second, 0 for as many as there are answers */
    double at_s; /* seconds after the measurement began; below 0: with the warm-up */
    struct kind *kinds[MAX_KINDS];
    uint32_t kind_count;

    uint64_t begins_ns, next_due_ns; /* 0: the stream has not been started */
    struct user *idle_first, *idle_last;
};

/* Connects and prepares all streams, but starts none of them. */
void open_traffic(const char *host, const char *port, struct stream *streams, uint32_t count);

/* Whether answers are counted; errors always are. */
void record_traffic(bool recording);

/* Stops sending requests; returns the number of those that were due and not sent, because all users were waiting. */
uint64_t end_traffic(void);

/*
 * Sends and receives until the time `until_ns`, or, with `until_idle`, until no request is outstanding and no stream
 * has another one to send. Returns the time.
 */
uint64_t run_traffic(uint64_t until_ns, bool until_idle);

/* Returns the number of unanswered requests, and counts them as lost with their kinds. */
uint64_t give_up_outstanding(void);

#endif
