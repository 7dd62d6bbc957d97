// The forecast of a step on machines that need not be there: how long it takes,
// what fills the time, and what part of the cards' speed arrives.
//
//   compute        the slowest stage's layers, and what each step costs beside
//   communication  what backward does not hide of the buckets' sums; sums of
//                  statistics, rows and maps, and the votes, which nothing
//                  hides
//   bubble         a pipeline fills and drains
//   input          the loaders of a machine are slower than its cards
//
// Two kinds of link are told apart: that inside a machine, between two of its
// cards, and the machines' network. A sum over n cards of k machines with g
// cards each takes, for S bytes (Thakur et al., "Optimization of Collective
// Communication Operations in MPICH", 2005),
//
//   flat           one ring of all: 2 (n - 1) messages of S / n over the slower
//                  link
//   hierarchical   scattered among the cards of a machine, summed between
//                  machines by each card for its part, gathered inside:
//                  2 (g - 1) messages of S / g inside; between, a ring of
//                  2 (k - 1) messages or a tree of 2 log2(k), which shares the
//                  machine's network with g - 1 others
//
// Nobody is slower than the others here, and no network is shared with
// strangers: real steps on thousands of cards take longer by that.
#pragma once

#include <cstdint>

#include "parallel/predict/time_model.h"

namespace headroom::predict {

struct Link {
  double bytes_per_second = 1;  // one way
  double latency_seconds = 0;   // one message's delay
};

struct Machines {
  int64_t number = 1;
  int64_t cards_each = 1;  // cards, or processes, of each
  Link inside;             // one card's, to another of its machine
  Link between;            // one machine's network
  int64_t cards() const { return number * cards_each; }
};

// `ranks` consecutive ranks that sum together.
struct SumTime {
  double flat = 0;          // seconds
  double hierarchical = 0;  // seconds; that of `flat` within one machine
  bool prefers_hierarchy() const { return hierarchical < flat; }
  double least() const { return prefers_hierarchy() ? hierarchical : flat; }
};
// REQUIRES: 1 <= ranks; bytes >= 0.
SumTime sum_time(const Machines& machines, int64_t ranks, double bytes);

struct ForecastRequest {
  // Its device is not used. A layer's work is in seconds of one card.
  TimeRequest step;
  Machines machines;
  // Whether sums go on beside backward: over a network and on cards they do,
  // through memory that processes share they do not.
  bool overlaps = true;
  // Whether the ranks can sum hierarchically. NCCL does; Gloo sums in a ring.
  bool has_hierarchy = true;
  double seconds_beside_layers = 0;  // loss, optimizer, launches of a step
  // Images that the loaders of one machine make; 0: never too few.
  double loaded_images_per_second = 0;
};

struct StepForecast {
  // Parts of a step in seconds; they add up to it.
  double compute = 0;
  double communication = 0;  // what nothing hides
  double bubble = 0;
  double input = 0;
  double seconds() const { return compute + communication + bubble + input; }

  double hidden_communication = 0;  // seconds beside backward
  // A step of cards that never wait and share the work evenly.
  double ideal_seconds = 0;
  double efficiency() const { return ideal_seconds / seconds(); }
  // The sum of the largest stage's gradients in one message, to compare ways.
  int64_t gradient_bytes = 0;
  SumTime gradient_sum;
};

// REQUIRES: as estimate_memory(); the layout is of as many ranks as there are
// cards.
StepForecast forecast_step(const ForecastRequest& request);

}  // namespace headroom::predict
