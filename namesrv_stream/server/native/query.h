/*
 * Splits a route query's frame where queries of one template differ. remoting/frame.py does the same in
 * Python, and explains why it is correct. A frame that is split differently here matches no stored answer.
 */
#ifndef QUERY_H
#define QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first length counts the bytes after it; the second is the header's, with its encoding (0: JSON) as first byte. */
enum { LENGTH = 4, LENGTHS = 8 };

struct text {
    const char *bytes;
    size_t length;
};

struct query {
    struct text before; /* the header up to the opaque's digits */
    struct text opaque; /* one to ten digits, exactly as Python would write the number */
    struct text after;
    uint64_t view; /* number of the client's address view; set by the caller */
};

/* ``frame`` excludes its first length. Sets all but the view. Returns false unless it is a JSON header with opaque,
 * without body. */
bool cut_query(struct text frame, struct query *query);

uint32_t read_length(const char *bytes);
void write_length(char *bytes, uint32_t length);

#endif
