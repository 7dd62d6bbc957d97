// Forecasts the step on machines that need not exist: how long it takes, how
// that time is spent, and which share of the cards' speed is used.
//
//   compute        the slowest stage's layers, and fixed costs of each step; on
//                  cards at least the time that the host needs to start them
//   communication  the part of the gradient sums that backward does not hide;
//                  sums of statistics, exchanges of rows and maps, scatters of
//                  ZeRO 2 and 3, which are never hidden; copies of shards
//                  that take longer than the next step's compute;
//                  on cards also the cores that NCCL takes from backward, and
//                  the wait for the slowest of all cards
//   host           the host's sum of the reports and the vote; on cards also
//                  what starting the sums adds, and the end of a step. Cards
//                  that split only the data sum the reports themselves, which
//                  is communication
//   bubble         waiting while the pipeline fills and drains
//   input          waiting for loaders that are slower than the cards
//
// There are two kinds of link for sums and gathers: between two cards of one
// machine, and the network between machines. Messages between two cards reach
// at most kMessagesOfCards. Summing S bytes over n cards of k machines
// with g cards each takes (Thakur et al., "Optimization of Collective
// Communication Operations in MPICH", 2005)
//
//   flat           one ring of all cards: 2 (n - 1) messages of S / n over the
//                  slower link
//   hierarchical   a scatter inside each machine, a sum between machines by
//                  each card for its part, a gather inside: 2 (g - 1) messages
//                  of S / g inside; between machines a ring of 2 (k - 1)
//                  messages or a tree of 2 log2(k), sharing the machine's
//                  network with g - 1 others
//
// The vote at the end of a step is summed by NCCL if cards split only the data
// (worker/step/step_commit.h), else on the host, whatever the backend: in each
// machine's memory, then between the k machines by recursive doubling
// (parallel/collectives/network_collectives.h): log2(k) messages of all its
// bytes, at most two more if k is no power of two.
//
// The model assumes that all cards are equally fast and that no other job uses
// the network. Real steps on thousands of cards take longer.
#pragma once

#include <cstdint>

#include "parallel/predict/time_model.h"

namespace headroom::predict {

struct Machines {
  int64_t number = 1;
  int64_t cards_each = 1;  // cards or processes per machine
  Link inside;             // between two cards of a machine
  Link between;            // the network between machines
  int64_t cards() const { return number * cards_each; }
};

// Time for `ranks` consecutive ranks to sum a tensor.
struct SumTime {
  double flat = 0;          // seconds
  double hierarchical = 0;  // seconds; equals `flat` within one machine
  bool prefers_hierarchy() const { return hierarchical < flat; }
  double least() const { return prefers_hierarchy() ? hierarchical : flat; }
};
// REQUIRES: 1 <= ranks; bytes >= 0.
SumTime sum_time(const Machines& machines, int64_t ranks, double bytes);

// Time for `ranks` consecutive ranks to sum a few KiB on the host, in seconds.
// REQUIRES: as sum_time().
double host_sum_seconds(const Machines& machines, int64_t ranks, double bytes);

struct ForecastRequest {
  // `step.device` is ignored. A layer's work is given in seconds on one card.
  TimeRequest step;
  Machines machines;
  // Whether sums overlap with backward: true over a network and on cards, false
  // over memory shared by processes.
  bool overlaps = true;
  // Whether cards can sum hierarchically. NCCL does; sockets sum large tensors
  // in a ring, and small ones as the vote.
  bool has_hierarchy = true;
  // Whether the ranks compute on cards, and whether a card replays its step as
  // a graph (--cuda-graphs). The costs on cards are constants in forecast.cpp.
  bool is_on_cards = false;
  bool replays_graphs = false;
  double seconds_beside_layers = 0;  // per step: loss, optimizer, launches
  // Images per second that one machine's loaders can supply; 0 if loaders never
  // limit the speed.
  double loaded_images_per_second = 0;
};

struct StepForecast {
  // The parts of a step, in seconds. Their sum is seconds().
  double compute = 0;
  double communication = 0;  // not overlapped with compute
  double host = 0;
  double bubble = 0;
  double input = 0;
  double seconds() const {
    return compute + communication + host + bubble + input;
  }

  double hidden_communication = 0;  // seconds overlapped with backward
  // The seconds of a step in which no card waits and all cards have equal work.
  double ideal_seconds = 0;
  double efficiency() const { return ideal_seconds / seconds(); }
  // To compare flat and hierarchical sums: the largest stage's gradients summed
  // in one message.
  int64_t gradient_bytes = 0;
  SumTime gradient_sum;
};

// REQUIRES: as estimate_memory(); the layout has one rank per card.
StepForecast forecast_step(const ForecastRequest& request);

}  // namespace headroom::predict
