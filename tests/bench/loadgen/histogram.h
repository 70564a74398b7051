/*
 * Latencies in nanoseconds, counted in buckets: each power of two is split into 64 parts, so that no value is told more
 * than 0.8 % away from what it was, and all of them take 30 KB, however many were counted.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_SUB_BITS = 6, HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total, sum_ns, max_ns;
};

unsigned histogram_bucket_of(uint64_t ns);

/* The middle of a bucket. */
uint64_t histogram_value_of(unsigned bucket);

void histogram_count(struct histogram *histogram, uint64_t ns);

/* The least counted value that at least `fraction` of all are not above; 0 if none were counted. */
uint64_t histogram_percentile_ns(const struct histogram *histogram, double fraction);

#endif
