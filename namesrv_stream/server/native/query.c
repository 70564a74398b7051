#define _GNU_SOURCE
#include "query.h"

#include <arpa/inet.h>
#include <string.h>

static const char OPAQUE[] = "\"opaque\":", GREATEST_OPAQUE[] = "2147483647";
enum { MAX_OPAQUE_DIGITS = sizeof GREATEST_OPAQUE - 1 };

uint32_t read_length(const char *bytes) {
    uint32_t length;
    memcpy(&length, bytes, sizeof length);
    return ntohl(length);
}

void write_length(char *bytes, uint32_t length) {
    length = htonl(length);
    memcpy(bytes, &length, sizeof length);
}

static bool is_canonical(struct text opaque) {
    if (opaque.length == 0 || opaque.length > MAX_OPAQUE_DIGITS || (opaque.bytes[0] == '0' && opaque.length > 1))
        return false;
    for (size_t i = 0; i < opaque.length; i++)
        if (opaque.bytes[i] < '0' || opaque.bytes[i] > '9')
            return false;
    return opaque.length < MAX_OPAQUE_DIGITS || memcmp(opaque.bytes, GREATEST_OPAQUE, MAX_OPAQUE_DIGITS) <= 0;
}

bool cut_query(struct text frame, struct query *query) {
    if (frame.length < LENGTH || read_length(frame.bytes) != frame.length - LENGTH)
        return false;
    const char *header = frame.bytes + LENGTH, *end = frame.bytes + frame.length;
    const char *opaque = memmem(header, (size_t)(end - header), OPAQUE, sizeof OPAQUE - 1);
    if (opaque == NULL)
        return false;
    opaque += sizeof OPAQUE - 1;
    const char *after = memchr(opaque, ',', (size_t)(end - opaque));
    if (after == NULL)
        return false;
    query->before = (struct text){header, (size_t)(opaque - header)};
    query->opaque = (struct text){opaque, (size_t)(after - opaque)};
    query->after = (struct text){after, (size_t)(end - after)};
    return is_canonical(query->opaque);
}
