/*
 * A route query's frame, cut where queries of one form differ: as processor/prepared.py does, which says why that is
 * right. Whatever is cut otherwise here is not found among the answers that are known.
 */
#ifndef QUERY_H
#define QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of what follows, and that of the header with the kind of its encoding in the first byte: 0 for JSON. */
enum { LENGTH = 4, LENGTHS = 8 };

struct text {
    const char *bytes;
    size_t length;
};

struct query {
    struct text before; /* the header up to the opaque's digits */
    struct text opaque; /* one to ten digits, as the general path would write them back */
    struct text after;
    struct text topic; /* within one of the two others */
};

/* ``frame``: without its first length. False where it is none of that kind: a JSON header with both, and no body. */
bool cut_query(struct text frame, struct query *query);

uint32_t read_length(const char *bytes);
void write_length(char *bytes, uint32_t length);

#endif
