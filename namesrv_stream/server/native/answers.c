#include "answers.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 17,
    FREED_AT_ONCE = 64, /* forgotten answers that are freed whenever an answer is stored */
};

/* The tail that many answers share: the route of a topic does not contain its name, so topics of the same brokers with
 * equal numbers of queues have the same tail. */
struct tail {
    struct tail *next; /* in the same bucket */
    uint64_t hash;
    size_t answers;
    struct text text;
    char bytes[];
};

struct answer {
    struct answer *next; /* in the same bucket */
    struct answer *older, *newer;
    uint64_t hash;                          /* of the topic */
    size_t size;                            /* of this allocation */
    uint32_t header_length;                 /* without the opaque */
    uint64_t view;
    struct text before, after, topic, head; /* all point into bytes */
    struct tail *tail;
    char bytes[];
};

struct answers {
    size_t max_bytes, bytes; /* bytes: size of everything that is not freed */
    uint64_t seed;
    struct answer *oldest, *newest;
    struct answer *garbage; /* forgotten, not yet freed; linked by newer */
    struct answer *buckets[BUCKETS];
    struct tail *tails[BUCKETS];
};

static bool is_same(struct text a, struct text b) {
    return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

static uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const struct answers *answers, struct text text) {
    uint64_t hash = answers->seed ^ text.length;
    for (size_t at = 0; at < text.length; at += 8) {
        uint64_t part = 0;
        size_t left = text.length - at;
        memcpy(&part, text.bytes + at, left < 8 ? left : 8);
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
    return answer->view == query->view && is_same(answer->before, query->before) && is_same(answer->after, query->after);
}

struct answers *new_answers(size_t max_bytes, uint64_t seed) {
    struct answers *answers = calloc(1, sizeof *answers);
    if (answers != NULL) {
        answers->max_bytes = max_bytes;
        answers->seed = seed;
    }
    return answers;
}

static struct text kept(char **at, struct text text) {
    struct text copy = {*at, text.length};
    memcpy(*at, text.bytes, text.length);
    *at += text.length;
    return copy;
}

/* Returns the tail with that text, and counts one more answer that uses it; NULL without memory. */
static struct tail *take_tail(struct answers *answers, struct text text) {
    uint64_t hash = hash_of(answers, text);
    struct tail **bucket = &answers->tails[hash % BUCKETS], *tail = *bucket;
    while (tail != NULL && !(tail->hash == hash && is_same(tail->text, text)))
        tail = tail->next;
    if (tail == NULL) {
        if ((tail = malloc(sizeof *tail + text.length)) == NULL)
            return NULL;
        char *at = tail->bytes;
        *tail = (struct tail){.next = *bucket, .hash = hash};
        tail->text = kept(&at, text);
        *bucket = tail;
        answers->bytes += sizeof *tail + text.length;
    }
    tail->answers++;
    return tail;
}

static void leave_tail(struct answers *answers, struct tail *tail) {
    if (--tail->answers > 0)
        return;
    struct tail **link = &answers->tails[tail->hash % BUCKETS];
    while (*link != tail)
        link = &(*link)->next;
    *link = tail->next;
    answers->bytes -= sizeof *tail + tail->text.length;
    free(tail);
}

static void free_answer(struct answers *answers, struct answer *answer) {
    leave_tail(answers, answer->tail);
    answers->bytes -= answer->size;
    free(answer);
}

static void free_garbage(struct answers *answers, size_t most) {
    while (answers->garbage != NULL && most-- > 0) {
        struct answer *answer = answers->garbage;
        answers->garbage = answer->newer;
        free_answer(answers, answer);
    }
}

void free_answers(struct answers *answers) {
    if (answers == NULL)
        return;
    forget_all(answers);
    free_garbage(answers, SIZE_MAX);
    free(answers);
}

/* ``link`` is the pointer to the answer in its bucket. */
static void remove_answer(struct answers *answers, struct answer **link) {
    struct answer *answer = *link;
    *link = answer->next;
    *(answer->older == NULL ? &answers->oldest : &answer->older->newer) = answer->newer;
    *(answer->newer == NULL ? &answers->newest : &answer->newer->older) = answer->older;
    free_answer(answers, answer);
}

static void remove_oldest(struct answers *answers) {
    struct answer **link = bucket_of(answers, answers->oldest->hash);
    while (*link != answers->oldest)
        link = &(*link)->next;
    remove_answer(answers, link);
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
    struct tail *taken = take_tail(answers, tail);
    if (taken == NULL)
        return;
    size_t size = sizeof(struct answer) + query->before.length + query->after.length + query->topic.length + head.length;
    free_garbage(answers, FREED_AT_ONCE);
    while (answers->bytes + size > answers->max_bytes && answers->garbage != NULL)
        free_garbage(answers, FREED_AT_ONCE);
    while (answers->bytes + size > answers->max_bytes && answers->oldest != NULL)
        remove_oldest(answers);
    struct answer *answer = answers->bytes + size > answers->max_bytes ? NULL : malloc(size);
    if (answer == NULL) {
        leave_tail(answers, taken);
        return;
    }
    char *at = answer->bytes;
    *answer = (struct answer){.next = *bucket, .older = answers->newest, .hash = hash, .size = size,
                              .header_length = header_length, .view = query->view, .tail = taken};
    answer->before = kept(&at, query->before);
    answer->after = kept(&at, query->after);
    answer->topic = kept(&at, query->topic);
    answer->head = kept(&at, head);
    *bucket = answer;
    *(answers->newest == NULL ? &answers->oldest : &answers->newest->newer) = answer;
    answers->newest = answer;
    answers->bytes += size;
}

static char *put(char *at, struct text text) {
    memcpy(at, text.bytes, text.length);
    return at + text.length;
}

/* Moves the answer to the front of its bucket, because clients repeat few of the many forms of a query. */
static const struct answer *find_answer(struct answers *answers, const struct query *query) {
    uint64_t hash = hash_of(answers, query->topic);
    struct answer **bucket = bucket_of(answers, hash);
    for (struct answer **link = bucket; *link != NULL; link = &(*link)->next) {
        struct answer *answer = *link;
        if (!is_of(answer, hash, query->topic) || !answers_to(answer, query))
            continue;
        *link = answer->next;
        answer->next = *bucket;
        return *bucket = answer;
    }
    return NULL;
}

bool knows_answer(struct answers *answers, const struct query *query) { return find_answer(answers, query) != NULL; }

size_t write_answer(struct answers *answers, const struct query *query, char *at, size_t room) {
    const struct answer *answer = find_answer(answers, query);
    if (answer == NULL)
        return 0;
    size_t length = LENGTHS + answer->head.length + query->opaque.length + answer->tail->text.length;
    if (length > room)
        return SIZE_MAX;
    write_length(at, (uint32_t)(length - LENGTH));
    write_length(at + LENGTH, answer->header_length + (uint32_t)query->opaque.length);
    put(put(put(at + LENGTHS, answer->head), query->opaque), answer->tail->text);
    return length;
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
