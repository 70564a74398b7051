#include "answers.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 17,
    ANSWERS_OF_TOPIC = 128,   /* forms of its query: clients differ in language, version and signature */
    FORGOTTEN_AT_ONCE = 4096, /* answers that are forgotten one by one */
    FREED_AT_ONCE = 64,       /* forgotten answers that are freed whenever an answer is stored */
};

/* A place in a bucket of a hash table. */
struct item {
    struct item *next, **link; /* the pointer to this item */
    uint64_t hash;
};

/* The tail that many answers share: the route of a topic does not contain its name, so topics of the same brokers with
 * equal numbers of queues have the same tail. */
struct tail {
    struct item item;
    size_t answers;
    struct text text;
    char bytes[];
};

struct answer {
    struct item by_query, by_topic;
    struct answer *older, *newer;
    uint64_t generation;    /* of all answers when it was stored */
    size_t size;            /* of this allocation */
    uint32_t header_length; /* without the opaque */
    uint64_t view;
    struct text before, after, head; /* all point into bytes */
    struct tail *tail;
    char bytes[];
};

struct answers {
    size_t max_bytes, bytes; /* bytes: size of everything that is not freed */
    uint64_t seed, multiplier;
    uint64_t generation; /* answers of earlier generations are forgotten; they are the oldest */
    struct answer *oldest, *newest;
    struct item *queries[BUCKETS], *topics[BUCKETS], *tails[BUCKETS];
};

static bool is_same(struct text a, struct text b) {
    return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

static uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Returns the hash of a text that follows what has the hash ``before``. */
static uint64_t hash_of(const struct answers *answers, uint64_t before, struct text text) {
    uint64_t hash = mixed(before ^ text.length, answers->multiplier);
    for (size_t at = 0; at < text.length; at += 8) {
        uint64_t part = 0;
        size_t left = text.length - at;
        memcpy(&part, text.bytes + at, left < 8 ? left : 8);
        hash = mixed(hash ^ part, answers->multiplier);
    }
    return hash;
}

static struct item **bucket_of(struct item **buckets, uint64_t hash) { return &buckets[hash % BUCKETS]; }

/* Puts the item first into the bucket of its hash. */
static void put_in(struct item **buckets, struct item *item) {
    struct item **bucket = bucket_of(buckets, item->hash);
    item->next = *bucket;
    item->link = bucket;
    if (item->next != NULL)
        item->next->link = &item->next;
    *bucket = item;
}

static void take_out(struct item *item) {
    *item->link = item->next;
    if (item->next != NULL)
        item->next->link = item->link;
}

static struct text kept(char **at, struct text text) {
    struct text copy = {*at, text.length};
    memcpy(*at, text.bytes, text.length);
    *at += text.length;
    return copy;
}

/* Returns the tail with that text, and counts one more answer that uses it; NULL without memory. */
static struct tail *take_tail(struct answers *answers, struct text text) {
    uint64_t hash = hash_of(answers, answers->seed, text);
    struct item *item = *bucket_of(answers->tails, hash);
    while (item != NULL && !(item->hash == hash && is_same(((struct tail *)item)->text, text)))
        item = item->next;
    struct tail *tail = (struct tail *)item;
    if (tail == NULL) {
        if ((tail = malloc(sizeof *tail + text.length)) == NULL)
            return NULL;
        char *at = tail->bytes;
        *tail = (struct tail){.item.hash = hash};
        tail->text = kept(&at, text);
        put_in(answers->tails, &tail->item);
        answers->bytes += sizeof *tail + text.length;
    }
    tail->answers++;
    return tail;
}

static void leave_tail(struct answers *answers, struct tail *tail) {
    if (--tail->answers > 0)
        return;
    take_out(&tail->item);
    answers->bytes -= sizeof *tail + tail->text.length;
    free(tail);
}

static uint64_t hash_of_query(const struct answers *answers, const struct query *query) {
    return hash_of(answers, hash_of(answers, answers->seed ^ query->view, query->before), query->after);
}

/* Returns the answer to a query, whether it is forgotten or not; NULL if there is none. */
static struct answer *find_answer(struct answers *answers, const struct query *query, uint64_t hash) {
    for (struct item *item = *bucket_of(answers->queries, hash); item != NULL; item = item->next) {
        struct answer *answer = (struct answer *)item;
        if (item->hash == hash && answer->view == query->view && is_same(answer->before, query->before) &&
            is_same(answer->after, query->after))
            return answer;
    }
    return NULL;
}

static bool is_forgotten(const struct answers *answers, const struct answer *answer) {
    return answer->generation != answers->generation;
}

static void remove_answer(struct answers *answers, struct answer *answer) {
    take_out(&answer->by_query);
    take_out(&answer->by_topic);
    *(answer->older == NULL ? &answers->oldest : &answer->older->newer) = answer->newer;
    *(answer->newer == NULL ? &answers->newest : &answer->newer->older) = answer->older;
    leave_tail(answers, answer->tail);
    answers->bytes -= answer->size;
    free(answer);
}

static uint64_t hash_of_topic(const struct answers *answers, uint64_t number) {
    return mixed(number ^ answers->seed, answers->multiplier);
}

/* Removes all answers about a topic but the ``kept`` newest ones. Returns the number of removed ones. */
static size_t remove_topic(struct answers *answers, uint64_t hash, size_t kept) {
    size_t count = 0;
    for (struct item *item = *bucket_of(answers->topics, hash), *next; item != NULL; item = next) {
        next = item->next;
        if (item->hash == hash && ++count > kept)
            remove_answer(answers, (struct answer *)((char *)item - offsetof(struct answer, by_topic)));
    }
    return count > kept ? count - kept : 0;
}

/* Frees some of the forgotten answers, then the oldest ones until there is room for ``size`` bytes. */
static void make_room(struct answers *answers, size_t size) {
    for (int freed = 0; answers->oldest != NULL; freed++) {
        bool is_freed = is_forgotten(answers, answers->oldest) && freed < FREED_AT_ONCE;
        if (!is_freed && answers->bytes + size <= answers->max_bytes)
            return;
        remove_answer(answers, answers->oldest);
    }
}

struct answers *new_answers(size_t max_bytes, uint64_t seed) {
    struct answers *answers = calloc(1, sizeof *answers);
    if (answers != NULL) {
        answers->max_bytes = max_bytes;
        answers->seed = seed;
        answers->multiplier = mixed(seed, 0x9E3779B97F4A7C15u) | 1;
    }
    return answers;
}

void free_answers(struct answers *answers) {
    if (answers == NULL)
        return;
    while (answers->oldest != NULL)
        remove_answer(answers, answers->oldest);
    free(answers);
}

void know_answer(struct answers *answers, const struct query *query, uint64_t topic, struct text head, struct text tail,
                 uint32_t header_length) {
    uint64_t hash = hash_of_query(answers, query), topic_hash = hash_of_topic(answers, topic);
    struct answer *same = find_answer(answers, query, hash);
    if (same != NULL)
        remove_answer(answers, same);
    remove_topic(answers, topic_hash, ANSWERS_OF_TOPIC - 1);
    size_t size = sizeof(struct answer) + query->before.length + query->after.length + head.length;
    size_t most = size + sizeof(struct tail) + tail.length;
    make_room(answers, most);
    struct answer *answer = answers->bytes + most > answers->max_bytes ? NULL : malloc(size);
    struct tail *taken = answer == NULL ? NULL : take_tail(answers, tail);
    if (taken == NULL) {
        free(answer);
        return;
    }
    char *at = answer->bytes;
    *answer = (struct answer){.by_query.hash = hash, .by_topic.hash = topic_hash, .older = answers->newest,
                              .generation = answers->generation, .size = size, .header_length = header_length,
                              .view = query->view, .tail = taken};
    answer->before = kept(&at, query->before);
    answer->after = kept(&at, query->after);
    answer->head = kept(&at, head);
    put_in(answers->queries, &answer->by_query);
    put_in(answers->topics, &answer->by_topic);
    *(answers->newest == NULL ? &answers->oldest : &answers->newest->newer) = answer;
    answers->newest = answer;
    answers->bytes += size;
}

/* Returns the stored answer as the first one of its bucket, because clients repeat few of the many queries. */
static const struct answer *use_answer(struct answers *answers, const struct query *query) {
    uint64_t hash = hash_of_query(answers, query);
    struct answer *answer = find_answer(answers, query, hash);
    if (answer == NULL || is_forgotten(answers, answer))
        return NULL;
    if (answer->by_query.link != bucket_of(answers->queries, hash)) {
        take_out(&answer->by_query);
        put_in(answers->queries, &answer->by_query);
    }
    return answer;
}

bool knows_answer(struct answers *answers, const struct query *query) { return use_answer(answers, query) != NULL; }

static char *put(char *at, struct text text) {
    memcpy(at, text.bytes, text.length);
    return at + text.length;
}

size_t write_answer(struct answers *answers, const struct query *query, char *at, size_t room) {
    const struct answer *answer = use_answer(answers, query);
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

void forget_topics(struct answers *answers, const uint64_t *topics, size_t count) {
    size_t forgotten = 0, i = 0;
    while (i < count && forgotten <= FORGOTTEN_AT_ONCE)
        forgotten += remove_topic(answers, hash_of_topic(answers, topics[i++]), 0);
    if (i < count)
        forget_all(answers);
}

void forget_all(struct answers *answers) { answers->generation++; }

size_t known_bytes(const struct answers *answers) { return answers->bytes; }
