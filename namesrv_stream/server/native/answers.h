/*
 * What was answered since, by the question: whole frames but for the opaque. Bounded; the oldest make room.
 * Not for several threads at once.
 */
#ifndef ANSWERS_H
#define ANSWERS_H

#include "query.h"

struct answers;

/* ``seed``: a secret, by which nobody can choose topics that all fall together. NULL: no memory. */
struct answers *new_answers(size_t max_bytes, uint64_t seed);
void free_answers(struct answers *answers);

/* ``head`` and ``tail``: of the answer, behind its two lengths and around the opaque; ``header_length``: of its header,
 * without the opaque. Takes the place of what was known. Without memory, or beyond all bounds, it is not known. */
void know_answer(struct answers *answers, const struct query *query, struct text head, struct text tail,
                 uint32_t header_length);

bool knows_answer(struct answers *answers, const struct query *query);

/* Writes the answer's frame; its length, 0 where none is known. SIZE_MAX: it needs more than ``room``. */
size_t write_answer(struct answers *answers, const struct query *query, char *at, size_t room);

void forget_topic(struct answers *answers, struct text topic);

/* At once; the memory is given back as others become known. */
void forget_all(struct answers *answers);

size_t known_bytes(const struct answers *answers);

#endif
