/*
 * The stored answers by query: complete frames without the opaque. Their size is limited; the oldest are evicted. The
 * work of each function is limited, whatever is stored. The functions are not thread-safe.
 *
 * A topic is a number: a hash of its name. The answers about two names with the same hash are forgotten together, which
 * is safe; it costs one query through Python.
 */
#ifndef ANSWERS_H
#define ANSWERS_H

#include "query.h"

struct answers;

/* ``seed`` is secret, so that a peer cannot choose queries with colliding hashes. Returns NULL without memory. */
struct answers *new_answers(size_t max_bytes, uint64_t seed);
void free_answers(struct answers *answers);

/* Stores an answer about a topic and replaces the previous one. ``head`` and ``tail`` are the parts after its two
 * lengths, before and after the opaque. ``header_length`` excludes the opaque. Without memory or room, the answer is not
 * stored. Of one topic, the 128 newest answers are kept. */
void know_answer(struct answers *answers, const struct query *query, uint64_t topic, struct text head, struct text tail,
                 uint32_t header_length);

bool knows_answer(struct answers *answers, const struct query *query);

/* Writes the answer's frame. Returns its length, 0 if none is stored, SIZE_MAX if it needs more than ``room``. */
size_t write_answer(struct answers *answers, const struct query *query, char *at, size_t room);

/* Forgets the answers about some topics; all answers if there are very many about these topics. */
void forget_topics(struct answers *answers, const uint64_t *topics, size_t count);

/* Takes effect at once; later calls of ``know_answer`` free the memory. */
void forget_all(struct answers *answers);

size_t known_bytes(const struct answers *answers);

#endif
