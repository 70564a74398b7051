/*
 * Who sends: streams of requests, on one thread.
 *
 * A stream has connections, and `depth` users on each, of which everyone has one request outstanding at most: that is a
 * closed loop. Without a rate a user asks again as soon as he has his answer. With a rate, requests fall due at even
 * distances and are sent by whichever user is free; their latency counts from when they were due, so a server that
 * stands still is charged with all the requests that it kept from being sent ("coordinated omission").
 *
 * A latency ends when the whole answer has been read, so it includes this program's own share of the machine.
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

    uint64_t begins_ns, next_due_ns; /* 0: not before it is told to */
    struct user *idle_first, *idle_last;
};

/* Connects and prepares all streams, none of which begins. */
void open_traffic(const char *host, const char *port, struct stream *streams, uint32_t count);

/* Whether what comes in is counted, errors aside: they always are. */
void record_traffic(bool recording);

/* No more requests from now on; returns those that were due and not sent, for all users were waiting. */
uint64_t end_traffic(void);

/*
 * Sends and receives until the time `until_ns`, or, with `until_idle`, until no request is outstanding and no stream has
 * one left to send. Returns the time.
 */
uint64_t run_traffic(uint64_t until_ns, bool until_idle);

/* Requests that are still not answered, noted as lost with their kinds. */
uint64_t give_up_outstanding(void);

#endif
