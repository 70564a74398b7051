/*
 * Latencies in nanoseconds, counted in buckets: each power of two is split into 64 parts, so that the error of a value
 * is at most 0.8 %, and the histogram takes 30 KB, whatever the number of values.
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

/* The smallest counted value that at least `fraction` of all values do not exceed; 0 if there are no values. */
uint64_t histogram_percentile_ns(const struct histogram *histogram, double fraction);

#endif
