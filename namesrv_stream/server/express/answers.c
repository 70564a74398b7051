#include "answers.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 17,
    FREED_AT_ONCE = 64, /* of those forgotten together, at each that becomes known */
};

struct answer {
    struct answer *next;           /* in its bucket */
    struct answer *older, *newer;
    uint64_t hash;                 /* of the topic */
    size_t size;                   /* of this piece of memory */
    uint32_t header_length;        /* without the opaque */
    struct text before, after, topic, head, tail; /* all in bytes */
    char bytes[];
};

struct answers {
    size_t max_bytes, bytes; /* of all that is not freed */
    uint64_t seed;
    struct answer *oldest, *newest;
    struct answer *garbage; /* linked by newer */
    struct answer *buckets[BUCKETS];
};

static bool is_same(struct text a, struct text b) {
    return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

static uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const struct answers *answers, struct text topic) {
    uint64_t hash = answers->seed ^ topic.length;
    for (size_t at = 0; at < topic.length; at += 8) {
        uint64_t part = 0;
        size_t left = topic.length - at;
        memcpy(&part, topic.bytes + at, left < 8 ? left : 8);
        hash = mixed(hash ^ part, 0x9E3779B97F4A7C15u);
    }
    return hash;
}

static struct answer **bucket_of(struct answers *answers, uint64_t hash) {
    return &answers->buckets[hash % BUCKETS];
}

static bool is_of(const struct answer *answer, uint64_t hash, struct text topic) {
    return answer->hash == hash && is_same(answer->topic, topic);
}

static bool answers_to(const struct answer *answer, const struct query *query) {
    return is_same(answer->before, query->before) && is_same(answer->after, query->after);
}

struct answers *new_answers(size_t max_bytes, uint64_t seed) {
    struct answers *answers = calloc(1, sizeof *answers);
    if (answers != NULL) {
        answers->max_bytes = max_bytes;
        answers->seed = seed;
    }
    return answers;
}

static void free_garbage(struct answers *answers, size_t most) {
    while (answers->garbage != NULL && most-- > 0) {
        struct answer *answer = answers->garbage;
        answers->garbage = answer->newer;
        answers->bytes -= answer->size;
        free(answer);
    }
}

void free_answers(struct answers *answers) {
    if (answers == NULL)
        return;
    forget_all(answers);
    free_garbage(answers, SIZE_MAX);
    free(answers);
}

/* ``link``: what points to it in its bucket. */
static void remove_answer(struct answers *answers, struct answer **link) {
    struct answer *answer = *link;
    *link = answer->next;
    *(answer->older == NULL ? &answers->oldest : &answer->older->newer) = answer->newer;
    *(answer->newer == NULL ? &answers->newest : &answer->newer->older) = answer->older;
    answers->bytes -= answer->size;
    free(answer);
}

static void remove_oldest(struct answers *answers) {
    struct answer **link = bucket_of(answers, answers->oldest->hash);
    while (*link != answers->oldest)
        link = &(*link)->next;
    remove_answer(answers, link);
}

static struct text kept(char **at, struct text text) {
    struct text copy = {*at, text.length};
    memcpy(*at, text.bytes, text.length);
    *at += text.length;
    return copy;
}

void know_answer(struct answers *answers, const struct query *query, struct text head, struct text tail,
                 uint32_t header_length) {
    uint64_t hash = hash_of(answers, query->topic);
    struct answer **bucket = bucket_of(answers, hash);
    for (struct answer **link = bucket; *link != NULL; link = &(*link)->next)
        if (is_of(*link, hash, query->topic) && answers_to(*link, query)) {
            remove_answer(answers, link);
            break;
        }
    size_t size = sizeof(struct answer) + query->before.length + query->after.length + query->topic.length +
                  head.length + tail.length;
    free_garbage(answers, FREED_AT_ONCE);
    while (answers->bytes + size > answers->max_bytes && answers->garbage != NULL)
        free_garbage(answers, FREED_AT_ONCE);
    while (answers->bytes + size > answers->max_bytes && answers->oldest != NULL)
        remove_oldest(answers);
    if (answers->bytes + size > answers->max_bytes)
        return;
    struct answer *answer = malloc(size);
    if (answer == NULL)
        return;
    char *at = answer->bytes;
    *answer = (struct answer){.next = *bucket, .older = answers->newest, .hash = hash, .size = size,
                              .header_length = header_length};
    answer->before = kept(&at, query->before);
    answer->after = kept(&at, query->after);
    answer->topic = kept(&at, query->topic);
    answer->head = kept(&at, head);
    answer->tail = kept(&at, tail);
    *bucket = answer;
    *(answers->newest == NULL ? &answers->oldest : &answers->newest->newer) = answer;
    answers->newest = answer;
    answers->bytes += size;
}

static char *put(char *at, struct text text) {
    memcpy(at, text.bytes, text.length);
    return at + text.length;
}

size_t write_answer(const struct answers *answers, const struct query *query, char *at, size_t room) {
    uint64_t hash = hash_of(answers, query->topic);
    for (const struct answer *answer = answers->buckets[hash % BUCKETS]; answer != NULL; answer = answer->next) {
        if (!is_of(answer, hash, query->topic) || !answers_to(answer, query))
            continue;
        size_t length = LENGTHS + answer->head.length + query->opaque.length + answer->tail.length;
        if (length > room)
            return SIZE_MAX;
        write_length(at, (uint32_t)(length - LENGTH));
        write_length(at + LENGTH, answer->header_length + (uint32_t)query->opaque.length);
        put(put(put(at + LENGTHS, answer->head), query->opaque), answer->tail);
        return length;
    }
    return 0;
}

void forget_topic(struct answers *answers, struct text topic) {
    uint64_t hash = hash_of(answers, topic);
    for (struct answer **link = bucket_of(answers, hash); *link != NULL;)
        if (is_of(*link, hash, topic))
            remove_answer(answers, link);
        else
            link = &(*link)->next;
}

void forget_all(struct answers *answers) {
    if (answers->newest == NULL)
        return;
    answers->newest->newer = answers->garbage;
    answers->garbage = answers->oldest;
    answers->oldest = answers->newest = NULL;
    memset(answers->buckets, 0, sizeof answers->buckets);
}

size_t known_bytes(const struct answers *answers) { return answers->bytes; }
