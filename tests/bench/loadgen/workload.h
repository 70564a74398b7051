/*
 * Kinds of requests: each has a file of complete frames and a rule that chooses the next one.
 *
 * The file contains, for each frame, a big-endian 32-bit number and the frame. The number, from 1 on, is that of the
 * shared connection ("link") of the frame, because a broker sends its registrations and heartbeats over one connection;
 * 0 is the connection of the user that sends the frame. The frame's JSON header contains "opaque":1000000000, whose
 * digits are replaced whenever the frame is sent.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

/* Opaques have ten digits, so that they can be written into a prepared frame: 1,000,000,000 to 2^31 - 1. */
enum { FIRST_OPAQUE = 1000000000, OPAQUE_DIGITS = 10, MAX_OPAQUES = 1147483647 };

struct frame {
    const char *bytes;
    uint32_t length, opaque_at, link;
};

enum choice {
    UNIFORM,
    ZIPF, /* the n-th frame of the file is asked for 1/n as often as the first */
    IN_TURN,
    ONCE, /* each frame once, in the file's order */
};

struct kind {
    const char *name;
    struct frame *frames;
    uint32_t count, next;
    enum choice choice;
    double share;         /* of its stream's requests, relative to those of the other kinds */
    bool wants_body;      /* an answer without a JSON object as body is an error */
    double *zipf_weights; /* cumulative */

    /* The measurements. */
    struct histogram latency;
    uint64_t sent, answered_in_time, bytes_sent, bytes_received;
    uint64_t refused, empty, lost;
    long last_refusal;
    uint64_t first_due_ns, last_answered_ns;
};

/* Reads NAME:FILE:CHOICE:SHARE:BODY, for example read:/tmp/reads:uniform:0.95:body or beat:/tmp/beats:turn:1:any. */
struct kind *read_kind(char *description);

/* Returns the next frame to send; NULL if there is none. */
const struct frame *next_frame(struct kind *kind);

#endif
