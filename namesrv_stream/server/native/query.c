#define _GNU_SOURCE
#include "query.h"

#include <arpa/inet.h>
#include <string.h>

static const char OPAQUE[] = "\"opaque\":", TOPIC[] = "\"topic\":\"", GREATEST_OPAQUE[] = "2147483647";
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

/* Finds the text between the first ``name`` and the next ``end``. */
static bool find_value(struct text header, const char *name, size_t name_length, char end, struct text *value) {
    const char *at = memmem(header.bytes, header.length, name, name_length);
    if (at == NULL)
        return false;
    value->bytes = at + name_length;
    const char *behind = memchr(value->bytes, end, (size_t)(header.bytes + header.length - value->bytes));
    if (behind == NULL)
        return false;
    value->length = (size_t)(behind - value->bytes);
    return true;
}

bool cut_query(struct text frame, struct query *query) {
    if (frame.length < LENGTH || read_length(frame.bytes) != frame.length - LENGTH)
        return false;
    struct text header = {frame.bytes + LENGTH, frame.length - LENGTH};
    if (!find_value(header, OPAQUE, sizeof OPAQUE - 1, ',', &query->opaque) || !is_canonical(query->opaque) ||
        !find_value(header, TOPIC, sizeof TOPIC - 1, '"', &query->topic))
        return false;
    const char *behind = query->opaque.bytes + query->opaque.length;
    query->before = (struct text){header.bytes, (size_t)(query->opaque.bytes - header.bytes)};
    query->after = (struct text){behind, (size_t)(header.bytes + header.length - behind)};
    return true;
}
