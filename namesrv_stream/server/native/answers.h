/*
 * The stored answers by query: complete frames without the opaque. Their size is limited; the oldest are evicted.
 * The functions are not thread-safe.
 */
#ifndef ANSWERS_H
#define ANSWERS_H

#include "query.h"

struct answers;

/* ``seed`` is secret, so that a peer cannot choose topics with colliding hashes. Returns NULL without memory. */
struct answers *new_answers(size_t max_bytes, uint64_t seed);
void free_answers(struct answers *answers);

/* Stores an answer and replaces the previous one. ``head`` and ``tail`` are the parts after its two lengths, before and
 * after the opaque. ``header_length`` excludes the opaque. Without memory or room, the answer is not stored. */
void know_answer(struct answers *answers, const struct query *query, struct text head, struct text tail,
                 uint32_t header_length);

bool knows_answer(struct answers *answers, const struct query *query);

/* Writes the answer's frame. Returns its length, 0 if none is stored, SIZE_MAX if it needs more than ``room``. */
size_t write_answer(struct answers *answers, const struct query *query, char *at, size_t room);

void forget_topic(struct answers *answers, struct text topic);

/* Takes effect at once; later calls of ``know_answer`` free the memory. */
void forget_all(struct answers *answers);

size_t known_bytes(const struct answers *answers);

#endif
