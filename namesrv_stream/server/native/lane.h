/*
 * The native lane: a thread that answers route queries with stored answers, without the interpreter.
 *
 * Python owns every connection, and hands over those with only route queries. The thread returns a connection that
 * sends anything but complete queries with stored answers, together with the bytes that were read and not answered.
 * So the thread makes no decisions, and does only what Python would do. README.md describes the states.
 */
#ifndef LANE_H
#define LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct lane;

/* A returned connection: ``unread`` bytes that arrived and were not answered, followed by ``unsent`` bytes of answers
 * that were not sent. */
struct returned {
    struct returned *next;
    uint64_t id;
    size_t unread, unsent;
    char bytes[];
};

/* Starts the thread. answers.h describes ``seed``. ``bounds_ns`` are the upper bounds of the histogram of response
 * times, ascending. Returns NULL and sets errno if it cannot start. */
struct lane *lane_start(size_t max_answers_bytes, uint64_t seed, const uint64_t *bounds_ns, size_t bounds);

/* Stops the thread. Python must take back the connections; no further ones are handed over. */
void lane_stop(struct lane *lane);
void lane_free(struct lane *lane);

/* Sends ``answer`` if the answer to ``frame`` (without its first length) is stored. If the kernel accepts all of it,
 * the thread owns the socket: Python neither reads nor writes it until it is returned or taken back. ``id`` is not 0,
 * and never used twice. ``view`` is the number of the client's address view: only answers that were stored with the same
 * number are sent. Returns LANE_HANDED_OVER, or the number of bytes sent if the thread does not own the socket. */
enum { LANE_HANDED_OVER = -1 };
ssize_t lane_hand_over(struct lane *lane, int fd, uint64_t id, const char *frame, size_t frame_length,
                       const char *answer, size_t length, uint64_t view);

/* Ends the hand-over: the thread neither reads nor writes the connection afterwards. Returns false if it was returned
 * already, or never handed over. */
bool lane_take_back(struct lane *lane, int fd, uint64_t id);

/* Returns a file descriptor that is readable while ``lane_next_returned`` has a connection. */
int lane_returned_fd(const struct lane *lane);

/* Returns the next returned connection, which ``lane_free_returned`` frees; NULL if there is none. */
struct returned *lane_next_returned(struct lane *lane);
void lane_free_returned(struct returned *returned);

/* Stores an answer about a topic. ``frame`` is a query without its first length. ``head`` and ``tail`` are the parts of
 * its answer after the two lengths, before and after the opaque. ``header_length`` excludes the opaque. ``view`` as
 * above. answers.h describes the number of a topic. */
void lane_know(struct lane *lane, const char *frame, size_t length, uint64_t topic, const char *head, size_t head_length,
               const char *tail, size_t tail_length, uint32_t header_length, uint64_t view);

/* Writes the complete answer to ``frame``. Returns its length, 0 if none is stored that fits. */
size_t lane_find(struct lane *lane, const char *frame, size_t length, char *at, size_t room, uint64_t view);

/* Drops the answers about ``topics``. */
void lane_forget(struct lane *lane, const uint64_t *topics, size_t count);
void lane_forget_all(struct lane *lane);

/* Writes the ids of at most ``room`` connections that had traffic since the last call; returns their number. This
 * function and the next wait for the connection that is being served. */
size_t lane_active(struct lane *lane, uint64_t *ids, size_t room);

/* Writes the number of answers for every bound, the number above the last bound, the total time in nanoseconds, and the
 * bytes of the stored answers. */
void lane_counters(struct lane *lane, uint64_t *counters);

#endif
