/*
 * The native lane: a thread that answers route queries whose answer is known, without the interpreter.
 *
 * Python owns every connection and hands over those on which nothing but route queries comes. A connection that brings
 * anything else than complete queries with known answers is returned, with the bytes that were read and not answered.
 * So this thread decides nothing, and what it does is what Python would have done. README.md describes the states.
 */
#ifndef LANE_H
#define LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct lane;

/* A returned connection: ``unread`` bytes that arrived and were not answered, followed by ``unsent`` bytes of answers
 * that the peer has not taken. */
struct returned {
    struct returned *next;
    uint64_t id;
    size_t unread, unsent;
    char bytes[];
};

/* Starts the thread. ``seed``: see answers.h. ``bounds_ns``: upper bounds of the histogram of response times,
 * ascending. NULL, with errno, where it cannot start. */
struct lane *lane_start(size_t max_answers_bytes, uint64_t seed, const uint64_t *bounds_ns, size_t bounds);

/* Ends the thread. Nothing is handed over afterwards; what was handed over has to be taken back. */
void lane_stop(struct lane *lane);
void lane_free(struct lane *lane);

/* If the answer to ``frame`` (without its first length) is known, sends ``answer`` and, where the kernel took all of
 * it, takes over the connection: nobody else reads it or writes to it until it is returned or taken back. ``id`` is not
 * 0 and never used twice. Returns LANE_HANDED_OVER, or the number of bytes sent where it did not take it over. */
enum { LANE_HANDED_OVER = -1 };
ssize_t lane_hand_over(struct lane *lane, int fd, uint64_t id, const char *frame, size_t frame_length,
                       const char *answer, size_t length);

/* From now on the thread reads nothing of it and writes nothing to it. False where it was returned already, or never
 * handed over. */
bool lane_take_back(struct lane *lane, int fd, uint64_t id);

/* Readable while ``lane_next_returned`` has a connection to tell of. */
int lane_returned_fd(const struct lane *lane);

/* The next returned connection, for ``lane_free_returned``; NULL where there is none. */
struct returned *lane_next_returned(struct lane *lane);
void lane_free_returned(struct returned *returned);

/* ``frame``: a query without its first length. ``head``, ``tail``: its answer after the two lengths, before and after
 * the opaque. ``header_length``: of the answer's header, without the opaque. */
void lane_know(struct lane *lane, const char *frame, size_t length, const char *head, size_t head_length,
               const char *tail, size_t tail_length, uint32_t header_length);

/* Writes the whole answer to ``frame``. Returns its length, 0 where none is known that fits. */
size_t lane_find(struct lane *lane, const char *frame, size_t length, char *at, size_t room);

/* ``topics``: each followed by a zero byte. */
void lane_forget(struct lane *lane, const char *topics, size_t length);
void lane_forget_all(struct lane *lane);

/* Writes the ids of connections that had traffic since the last call, at most ``room``; returns how many. This function
 * and the next wait for the connection that is being served. */
size_t lane_active(struct lane *lane, uint64_t *ids, size_t room);

/* Writes the number of answers by bound, then that of those above the last bound, the sum in nanoseconds, and the bytes
 * of known answers. */
void lane_counters(struct lane *lane, uint64_t *counters);

#endif
