#define _GNU_SOURCE
#include "workload.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

static const char OPAQUE[] = "\"opaque\":1000000000";

static uint32_t number_at(const char *bytes) {
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return ntohl(number);
}

/* Checks the record of one frame and returns the bytes that it takes. */
static size_t read_frame(const char *path, const char *record, size_t left, struct frame *frame) {
    if (left < 12) die("%s: cut off", path);
    uint32_t total = number_at(record + 4), header = number_at(record + 8);
    if (total < 4 || total > left - 8 || header > total - 4) die("%s: no sound frames", path);
    const char *opaque = memmem(record + 12, header, OPAQUE, sizeof OPAQUE - 1);
    if (!opaque) die("%s: a frame without %s in its header", path, OPAQUE);
    frame->link = number_at(record);
    frame->bytes = record + 4;
    frame->length = total + 4;
    frame->opaque_at = (uint32_t)(opaque + sizeof OPAQUE - 1 - OPAQUE_DIGITS - frame->bytes);
    return 8 + (size_t)total;
}

static void read_frames(struct kind *kind, const char *path) {
    int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) < 0) die("%s: %s", path, strerror(errno));
    size_t size = (size_t)status.st_size, at = 0;
    const char *bytes = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0) : "";
    if (bytes == MAP_FAILED) die("%s: %s", path, strerror(errno));
    close(file);
    for (uint32_t capacity = 0; at < size; kind->count++) {
        if (kind->count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            kind->frames = realloc(kind->frames, capacity * sizeof *kind->frames);
            if (!kind->frames) die("out of memory");
        }
        at += read_frame(path, bytes + at, size - at, &kind->frames[kind->count]);
    }
    if (!kind->count) die("%s: empty", path);
}

static enum choice choice_named(const char *name) {
    static const char *const names[] = {[UNIFORM] = "uniform", [ZIPF] = "zipf", [IN_TURN] = "turn", [ONCE] = "once"};
    for (enum choice choice = UNIFORM; choice <= ONCE; choice++)
        if (!strcmp(name, names[choice])) return choice;
    die("no such choice: %s", name);
}

struct kind *read_kind(char *description) {
    char *fields[5], *rest = description;
    for (int i = 0; i < 5; i++)
        if (!(fields[i] = strsep(&rest, ":"))) die("a kind is NAME:FILE:CHOICE:SHARE:body|any");
    struct kind *kind = allocate(1, sizeof *kind);
    kind->name = fields[0];
    kind->choice = choice_named(fields[2]);
    kind->share = atof(fields[3]);
    kind->wants_body = !strcmp(fields[4], "body");
    if (rest || kind->share <= 0) die("kind %s: shares are above 0, and nothing comes behind the fifth part", kind->name);
    read_frames(kind, fields[1]);
    if (kind->choice == ZIPF) {
        double sum = 0;
        kind->zipf_weights = allocate(kind->count, sizeof *kind->zipf_weights);
        for (uint32_t i = 0; i < kind->count; i++) kind->zipf_weights[i] = sum += 1.0 / (i + 1);
    }
    return kind;
}

static uint32_t zipf_index(const struct kind *kind) {
    double wanted = random_fraction() * kind->zipf_weights[kind->count - 1];
    uint32_t low = 0, high = kind->count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (kind->zipf_weights[middle] > wanted)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

const struct frame *next_frame(struct kind *kind) {
    switch (kind->choice) {
    case UNIFORM: return &kind->frames[(uint32_t)(random_fraction() * kind->count)];
    case ZIPF: return &kind->frames[zipf_index(kind)];
    case IN_TURN: return &kind->frames[kind->next++ % kind->count];
    case ONCE: return kind->next < kind->count ? &kind->frames[kind->next++] : NULL;
    }
    return NULL;
}
