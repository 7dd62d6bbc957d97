// The collectives of a NetworkGroup, one rank's part of each. They run in the
// group's thread for collectives, and throw std::runtime_error with a reason
// that names the peer.
//
// A sum goes one of two ways, by its size:
//
//   small   A machine's ranks add up in their shared memory, in rank order. The
//           lowest rank of each machine, its leader, then exchanges the sum
//           with the leaders at distances 1, 2, 4, ... in the list of leaders;
//           of two sums, that of the lower leader is the left operand. If the
//           number of leaders is no power of two, the leaders beyond the
//           largest power of two p first give their sums to those p places
//           before, and get the result at the end. With k machines this takes
//           log2(k) messages one after the other, at most two more if k is no
//           power of two.
//   large   Each chunk passes once round the ring of all ranks: 2 (n - 1)
//           messages one after the other.
//
// Either way the order of additions follows from the ranks and their machines
// alone, and all ranks get the same bits. Elements are added in the tensor's
// own type.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/network_group.h"

namespace headroom::collectives {

// Whether a sum over `ranks` ranks goes the small way: up to 64 KiB, or up to
// 4 KiB for each rank. The small way sends the whole tensor log2(k) times, the
// ring twice, so the small way is faster while a message's delay costs more
// than its bytes. At 27 us a message and 10 Gbit/s both take the same time at
// about 70 KB with 5 machines, 300 KB with 8, and 5 MB with 512. A sum must
// also fit into the memory that a machine's ranks share.
bool is_small_sum(const at::Tensor& tensor, int ranks);

// The leaders with which `rank` exchanges small sums; none if it is no leader.
std::vector<int> sum_partners(const std::vector<int>& leaders, int rank);

// A small sum.
void reduce_by_doubling(NetworkGroup& group, const at::Tensor& tensor,
                        ReduceOp op);

// A large sum. Each chunk passes once round the ring, from rank to previous
// rank, and every rank adds its values: rank r gets the sum of chunk r. Then
// the sums pass round the ring.
void reduce_around_ring(NetworkGroup& group, const at::Tensor& tensor,
                        ReduceOp op);

// `whole` already contains this rank's part.
void gather_around_ring(NetworkGroup& group, Bytes whole);

// Sends along a binomial tree: a rank that has received the bytes sends them to
// one rank after another, each at half the distance of the one before.
void broadcast_down_tree(NetworkGroup& group, Bytes whole, int root);

// A barrier. After the step with distance d, this rank and the 2d - 1 ranks
// before it have arrived.
void meet(NetworkGroup& group);

}  // namespace headroom::collectives
