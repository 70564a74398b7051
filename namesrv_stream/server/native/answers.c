#include "answers.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 17,
    ANSWERS_OF_TOPIC = 256,   /* forms of its query: clients of several languages and versions, each with its signature */
    FORGOTTEN_AT_ONCE = 4096, /* answers that are forgotten one by one */
    FREED_AT_ONCE = 64,       /* forgotten answers that are freed whenever an answer is stored */
};

/* The first member of what is in a hash table. Topics and answers are in a circular list by age as well. */
struct item {
    struct item *next, **link; /* in the same bucket; the pointer to this item */
    uint64_t hash;
    struct item *older, *newer;
};

/* The tail that many answers share: the route of a topic does not contain its name, so topics of the same brokers with
 * equal numbers of queues have the same tail. */
struct tail {
    struct item item;
    size_t answers;
    struct text text;
    char bytes[];
};

struct topic {
    struct item item;
    struct item forms; /* the ends of the list of its answers by last use, which is never empty */
    size_t form_count;
};

struct answer {
    struct item item;
    struct topic *topic;
    uint64_t generation;    /* of the answers when it was stored */
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
    uint64_t generation; /* answers of earlier generations are forgotten */
    struct item by_age;  /* the ends of the list of topics by their last stored answer */
    struct item *topics[BUCKETS], *answers[BUCKETS], *tails[BUCKETS];
};

/* ---- hash tables and lists ---- */

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

static void put_in(struct item **bucket, struct item *item) {
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

static void clear(struct item *list) { list->older = list->newer = list; }

static void insert(struct item *older, struct item *item) {
    item->older = older;
    item->newer = older->newer;
    older->newer = item->newer->older = item;
}

static void detach(struct item *item) {
    item->older->newer = item->newer;
    item->newer->older = item->older;
}

static struct text kept(char **at, struct text text) {
    struct text copy = {*at, text.length};
    memcpy(*at, text.bytes, text.length);
    *at += text.length;
    return copy;
}

/* ---- tails, topics and answers ---- */

/* Returns the tail with that text, and counts one more answer that uses it; NULL without memory. */
static struct tail *take_tail(struct answers *answers, struct text text) {
    uint64_t hash = hash_of(answers, answers->seed, text);
    struct item **bucket = bucket_of(answers->tails, hash), *item = *bucket;
    while (item != NULL && !(item->hash == hash && is_same(((struct tail *)item)->text, text)))
        item = item->next;
    struct tail *tail = (struct tail *)item;
    if (tail == NULL) {
        if ((tail = malloc(sizeof *tail + text.length)) == NULL)
            return NULL;
        char *at = tail->bytes;
        *tail = (struct tail){.item.hash = hash};
        tail->text = kept(&at, text);
        put_in(bucket, &tail->item);
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
    for (struct item *item = *bucket_of(answers->answers, hash); item != NULL; item = item->next) {
        struct answer *answer = (struct answer *)item;
        if (item->hash == hash && answer->view == query->view && is_same(answer->before, query->before) &&
            is_same(answer->after, query->after))
            return answer;
    }
    return NULL;
}

/* Removes an answer, and its topic with the last answer about it. */
static void remove_answer(struct answers *answers, struct answer *answer) {
    struct topic *topic = answer->topic;
    take_out(&answer->item);
    detach(&answer->item);
    if (--topic->form_count == 0) {
        take_out(&topic->item);
        detach(&topic->item);
        answers->bytes -= sizeof *topic;
        free(topic);
    }
    leave_tail(answers, answer->tail);
    answers->bytes -= answer->size;
    free(answer);
}

/* Returns the answer that was used longest ago of the topic that was stored longest ago; NULL if nothing is stored. */
static struct answer *oldest_answer(struct answers *answers) {
    bool is_empty = answers->by_age.newer == &answers->by_age;
    return is_empty ? NULL : (struct answer *)((struct topic *)answers->by_age.newer)->forms.newer;
}

static bool is_forgotten(const struct answers *answers, const struct answer *answer) {
    return answer->generation != answers->generation;
}

/* Frees some of the forgotten answers, then the oldest ones until there is room for ``size`` bytes. */
static void make_room(struct answers *answers, size_t size) {
    struct answer *oldest;
    for (int freed = 0; (oldest = oldest_answer(answers)) != NULL; freed++) {
        bool is_freed = is_forgotten(answers, oldest) && freed < FREED_AT_ONCE;
        if (!is_freed && answers->bytes + size <= answers->max_bytes)
            return;
        remove_answer(answers, oldest);
    }
}

static uint64_t hash_of_topic(const struct answers *answers, uint64_t number) {
    return mixed(number ^ answers->seed, answers->multiplier);
}

static struct topic *find_topic(struct answers *answers, uint64_t hash) {
    struct item *item = *bucket_of(answers->topics, hash);
    while (item != NULL && item->hash != hash)
        item = item->next;
    return (struct topic *)item;
}

/* Returns the topic, as the newest one and with room for another answer; NULL without memory. */
static struct topic *take_topic(struct answers *answers, uint64_t hash) {
    struct topic *topic = find_topic(answers, hash);
    if (topic != NULL) {
        if (topic->form_count == ANSWERS_OF_TOPIC)
            remove_answer(answers, (struct answer *)topic->forms.newer);
        detach(&topic->item);
    } else {
        if ((topic = malloc(sizeof *topic)) == NULL)
            return NULL;
        *topic = (struct topic){.item.hash = hash};
        clear(&topic->forms);
        put_in(bucket_of(answers->topics, hash), &topic->item);
        answers->bytes += sizeof *topic;
    }
    insert(answers->by_age.older, &topic->item);
    return topic;
}

/* ---- what answers.h declares ---- */

struct answers *new_answers(size_t max_bytes, uint64_t seed) {
    struct answers *answers = calloc(1, sizeof *answers);
    if (answers != NULL) {
        answers->max_bytes = max_bytes;
        answers->seed = seed;
        answers->multiplier = mixed(seed, 0x9E3779B97F4A7C15u) | 1;
        clear(&answers->by_age);
    }
    return answers;
}

void free_answers(struct answers *answers) {
    if (answers == NULL)
        return;
    for (struct answer *oldest; (oldest = oldest_answer(answers)) != NULL;)
        remove_answer(answers, oldest);
    free(answers);
}

void know_answer(struct answers *answers, const struct query *query, uint64_t topic_number, struct text head,
                 struct text tail, uint32_t header_length) {
    uint64_t hash = hash_of_query(answers, query);
    struct answer *same = find_answer(answers, query, hash);
    if (same != NULL)
        remove_answer(answers, same);
    size_t size = sizeof(struct answer) + query->before.length + query->after.length + head.length;
    size_t most = size + sizeof(struct tail) + tail.length + sizeof(struct topic);
    make_room(answers, most);
    struct answer *answer = answers->bytes + most > answers->max_bytes ? NULL : malloc(size);
    struct tail *taken = answer == NULL ? NULL : take_tail(answers, tail);
    struct topic *topic = taken == NULL ? NULL : take_topic(answers, hash_of_topic(answers, topic_number));
    if (topic == NULL) {
        if (taken != NULL)
            leave_tail(answers, taken);
        free(answer);
        return;
    }
    char *at = answer->bytes;
    *answer = (struct answer){.item.hash = hash, .topic = topic, .generation = answers->generation, .size = size,
                              .header_length = header_length, .view = query->view, .tail = taken};
    answer->before = kept(&at, query->before);
    answer->after = kept(&at, query->after);
    answer->head = kept(&at, head);
    put_in(bucket_of(answers->answers, hash), &answer->item);
    insert(topic->forms.older, &answer->item);
    topic->form_count++;
    answers->bytes += size;
}

/* Returns the stored answer as the first one of its bucket and the newest one of its topic, because clients repeat few
 * of the many queries. */
static const struct answer *use_answer(struct answers *answers, const struct query *query) {
    uint64_t hash = hash_of_query(answers, query);
    struct item **bucket = bucket_of(answers->answers, hash);
    struct answer *answer = find_answer(answers, query, hash);
    if (answer == NULL || is_forgotten(answers, answer))
        return NULL;
    if (answer->item.link != bucket) {
        take_out(&answer->item);
        put_in(bucket, &answer->item);
    }
    if (answer->item.newer != &answer->topic->forms) {
        detach(&answer->item);
        insert(answer->topic->forms.older, &answer->item);
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

static size_t forget_topic(struct answers *answers, uint64_t number) {
    struct topic *topic = find_topic(answers, hash_of_topic(answers, number));
    size_t count = topic == NULL ? 0 : topic->form_count;
    for (size_t left = count; left > 0; left--)
        remove_answer(answers, (struct answer *)topic->forms.newer);
    return count;
}

void forget_topics(struct answers *answers, const uint64_t *topics, size_t count) {
    for (size_t i = 0, forgotten = 0; i < count; i++) {
        if (forgotten > FORGOTTEN_AT_ONCE) {
            forget_all(answers);
            return;
        }
        forgotten += forget_topic(answers, topics[i]);
    }
}

void forget_all(struct answers *answers) { answers->generation++; }

size_t known_bytes(const struct answers *answers) { return answers->bytes; }
