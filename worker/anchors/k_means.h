// k-means over box sizes: the shapes that boxes gather around.
//
// Lloyd, "Least squares quantization in PCM", 1982, in the plane of width and
// height, each divided by its standard deviation; started as k-means++ does
// (Arthur, Vassilvitskii, "k-means++: the advantages of careful seeding",
// 2007).
//
// Threads: a function; it starts some of its own, and their number changes no
// bit.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/anchors/box_fit.h"
#include "worker/data/sampling/random.h"

namespace headroom::anchors {

// `num_clusters` centres after at most `num_iterations` rounds; fewer where
// there are fewer different sizes. REQUIRES: num_clusters > 0.
std::vector<Anchor> k_means(const std::vector<BoxSize>& boxes,
                            int64_t num_clusters, int64_t num_iterations,
                            sampling::RandomStream& random,
                            int64_t num_threads);

}  // namespace headroom::anchors
