/*
 * A thread that answers route queries whose answer is known, without the interpreter.
 *
 * Python owns all connections and lends it those on which nothing else goes on. As soon as one brings anything but such
 * a query, whole and with a known answer, it is given back with what was read and not answered; so this thread decides
 * nothing, and what it does is what Python would have done.
 */
#ifndef EXPRESS_H
#define EXPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct express;

/* A connection given back, with what belongs to it: ``unread`` bytes that came and were not answered, and behind them
 * ``unsent`` bytes of answers that the peer has not taken. */
struct given_back {
    struct given_back *next;
    uint64_t id;
    size_t unread, unsent;
    char bytes[];
};

/* ``bounds_ns``: upper bounds of the histogram of how long answers took, ascending. NULL, with errno: it cannot be. */
struct express *express_start(size_t max_answers_bytes, uint64_t seed, const uint64_t *bounds_ns, size_t bounds);

/* Ends the thread; nothing is lent any more, and what is lent is to be taken back. */
void express_stop(struct express *express);
void express_free(struct express *express);

/* If the answer to ``frame`` (without its first length) is known, sends ``answer`` and, where all of it has gone, borrows
 * the connection: nobody else reads it or writes to it until it is given or taken back. ``id`` is never 0. Returns
 * EXPRESS_LENT, or how much has gone where it is not borrowed. */
enum { EXPRESS_LENT = -1 };
ssize_t express_lend(struct express *express, int fd, uint64_t id, const char *frame, size_t frame_length,
                     const char *answer, size_t length);

/* Nothing is read of it or written to it from now on. False where it was given back already, or never lent. */
bool express_take_back(struct express *express, int fd, uint64_t id);

/* Readable while connections were given back that ``express_given_back`` has not told. */
int express_given_back_fd(const struct express *express);

/* The next one, which is then to be forgotten; NULL for none. */
struct given_back *express_given_back(struct express *express);
void express_forget_given_back(struct given_back *given_back);

/* ``frame``: a query without its first length. ``head``, ``tail``: its answer behind the two lengths, around the opaque. */
void express_know(struct express *express, const char *frame, size_t length, const char *head, size_t head_length,
                  const char *tail, size_t tail_length, uint32_t header_length);

/* Writes the answer to ``frame``, as above; its length, 0 where none is known that has room. */
size_t express_find(struct express *express, const char *frame, size_t length, char *at, size_t room);

/* ``topics``: each with a zero byte behind it. */
void express_forget(struct express *express, const char *topics, size_t length);
void express_forget_all(struct express *express);

/* Which connections had traffic since this was last asked: how many, their ids at ``ids``. What is being served is
 * waited for, here and below. */
size_t express_active(struct express *express, uint64_t *ids, size_t room);

/* Counts by bound, those above the last one behind; then the sum in nanoseconds; then the bytes of known answers. */
void express_figures(struct express *express, uint64_t *figures);

#endif
