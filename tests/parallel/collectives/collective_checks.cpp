#include "tests/parallel/collectives/collective_checks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <filesystem>
#include <system_error>

#include <stdexcept>
#include <utility>

namespace headroom::collectives {
namespace {

// Sizes that are not multiples of the number of ranks, down to less than one
// element per rank.
constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 64, 1000, 4097, 100003};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kLong,
                                     at::kByte};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void require_same_bits(const at::Tensor& actual, const at::Tensor& expected,
                       const std::string& what) {
  require(at::equal(actual, expected), what + ": wrong values");
}

std::string describe(at::ScalarType type, int64_t size) {
  return std::string(at::toString(type)) + " x " + std::to_string(size);
}

// Small whole numbers that depend on the position, which starts at `begin`.
// Their sum is exact in every type and in every order.
at::Tensor numbers(int rank, int64_t size, at::ScalarType type,
                   int64_t begin = 0) {
  const at::Tensor index = at::arange(begin, begin + size, at::kLong);
  return (index * 7 + rank * 3).remainder(11).to(type);
}

template <typename Body>
void for_all_forms(const Body& body) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t size : kSizes) body(type, size);
  }
}

at::Tensor expected_sum(int num_ranks, int64_t size, at::ScalarType type,
                        int64_t begin = 0) {
  at::Tensor sum = at::zeros({size}, type);
  for (int rank = 0; rank < num_ranks; ++rank) {
    sum += numbers(rank, size, type, begin);
  }
  return sum;
}

void check_sum(Communicator& communicator) {
  for_all_forms([&](at::ScalarType type, int64_t size) {
    const at::Tensor tensor = numbers(communicator.rank(), size, type);
    communicator.all_reduce(tensor);
    require_same_bits(tensor, expected_sum(communicator.size(), size, type),
                      describe(type, size));
  });
}

void check_max(Communicator& communicator) {
  for_all_forms([&](at::ScalarType type, int64_t size) {
    const at::Tensor tensor = numbers(communicator.rank(), size, type);
    at::Tensor expected = numbers(0, size, type);
    for (int rank = 1; rank < communicator.size(); ++rank) {
      expected = at::maximum(expected, numbers(rank, size, type));
    }
    communicator.all_reduce(tensor, ReduceOp::kMax);
    require_same_bits(tensor, expected, describe(type, size));
  });
}

void check_strides(Communicator& communicator) {
  const at::Tensor whole =
      at::arange(2 * 3 * 5 * 7, at::kFloat).view({2, 3, 5, 7});
  const at::Tensor tensor =
      at::empty_like(whole, at::MemoryFormat::ChannelsLast);
  tensor.copy_(whole + communicator.rank());
  const int size = communicator.size();
  communicator.all_reduce(tensor);
  require(tensor.is_contiguous(at::MemoryFormat::ChannelsLast),
          "the strides changed");
  require_same_bits(tensor, whole * size + size * (size - 1) / 2.0,
                    "channels-last sum");

  // A reduction of a view leaves the rest of its buffer unchanged.
  const at::Tensor buffer = at::ones({100}, at::kDouble);
  communicator.all_reduce(buffer.narrow(0, 10, 33));
  at::Tensor expected = at::ones({100}, at::kDouble);
  expected.narrow(0, 10, 33).fill_(size);
  require_same_bits(buffer, expected, "sum of a part");

  // The tensor is a leaf that requires gradients, like a parameter at the start
  // of a run.
  const at::Tensor leaf = at::full({5}, communicator.rank() + 1.0, at::kFloat);
  leaf.set_requires_grad(true);
  communicator.broadcast(leaf, 0);
  require_same_bits(leaf.detach(), at::ones({5}), "broadcast of a leaf");
}

// Sums in the communicator's own memory: the whole tensor, and parts with any
// begin and end.
void check_own_memory(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  for_all_forms([&](at::ScalarType type, int64_t count) {
    const at::Tensor tensor = communicator.zeros(count, type);
    require_same_bits(tensor, at::zeros({count}, type), "fresh memory");
    tensor.copy_(numbers(rank, count, type));
    communicator.all_reduce(tensor);
    require_same_bits(tensor, expected_sum(size, count, type),
                      describe(type, count));
  });
  const at::Tensor other = communicator.zeros(50, at::kFloat);
  const at::Tensor tensor = communicator.zeros(100003, at::kFloat);
  tensor.fill_(rank);
  std::vector<std::unique_ptr<Work>> works;
  for (const auto& [begin, count] :
       {std::pair{1, 3}, {10, 50000}, {50010, 49000}, {99010, 993}}) {
    works.push_back(communicator.all_reduce_async(
        tensor.narrow(0, begin, count), ReduceOp::kMax));
  }
  for (const std::unique_ptr<Work>& work : works) work->wait();
  at::Tensor expected = at::full({100003}, size - 1.0F);
  for (const int64_t alone : {0, 4, 5, 6, 7, 8, 9}) expected[alone] = rank;
  require_same_bits(tensor, expected, "maxima of parts");
  communicator.broadcast(tensor, 0);
  require_same_bits(other, at::zeros({50}), "memory beside");
}

void check_several_under_way(Communicator& communicator) {
  std::vector<at::Tensor> tensors;
  std::vector<std::unique_ptr<Work>> works;
  for (int64_t i = 0; i < 12; ++i) {
    tensors.push_back(numbers(communicator.rank(), 1000 + 917 * i, at::kFloat));
    works.push_back(
        communicator.all_reduce_async(tensors.back(), ReduceOp::kSum));
  }
  // The test waits for the works in another order than the one in which they
  // were issued.
  for (size_t i = works.size(); i-- > 0;) works[i]->wait();
  for (const at::Tensor& tensor : tensors) {
    require_same_bits(
        tensor, expected_sum(communicator.size(), tensor.numel(), at::kFloat),
        "one of several sums");
  }
}

void check_all_gather(Communicator& communicator) {
  for_all_forms([&](at::ScalarType type, int64_t size) {
    const int num_ranks = communicator.size();
    const at::Tensor output = at::zeros({num_ranks, size}, type);
    communicator.all_gather(output, numbers(communicator.rank(), size, type));
    for (int rank = 0; rank < num_ranks; ++rank) {
      require_same_bits(output[rank], numbers(rank, size, type),
                        describe(type, size));
    }
  });
}

// In memory of any kind, and in that of zeros().
void check_all_gather_pieces(Communicator& communicator) {
  for_all_forms([&](at::ScalarType type, int64_t size) {
    const int num_ranks = communicator.size();
    const std::vector<int64_t> parts = {size, 0, 3, size + 1};
    const int64_t count = num_ranks * (2 * size + 4);
    for (const at::Tensor& flat :
         {at::zeros({count}, type), communicator.zeros(count, type)}) {
      const auto at_piece = [&](size_t piece, int rank) {
        int64_t begin = parts[piece] * rank;
        for (size_t i = 0; i < piece; ++i) begin += parts[i] * num_ranks;
        return flat.narrow(0, begin, parts[piece]);
      };
      for (size_t i = 0; i < parts.size(); ++i) {
        at_piece(i, communicator.rank())
            .copy_(numbers(communicator.rank(), parts[i], type));
      }
      communicator.all_gather_pieces(flat, parts);
      for (size_t i = 0; i < parts.size(); ++i) {
        for (int rank = 0; rank < num_ranks; ++rank) {
          require_same_bits(at_piece(i, rank), numbers(rank, parts[i], type),
                            describe(type, size));
        }
      }
    }
  });
}

void check_reduce_scatter(Communicator& communicator) {
  for_all_forms([&](at::ScalarType type, int64_t size) {
    const int num_ranks = communicator.size();
    const at::Tensor input =
        numbers(communicator.rank(), size * num_ranks, type);
    const at::Tensor output = at::zeros({size}, type);
    communicator.reduce_scatter(output, input);
    require_same_bits(
        output, expected_sum(num_ranks, size, type, communicator.rank() * size),
        describe(type, size));
  });
}

void check_broadcast(Communicator& communicator) {
  for_all_forms([&](at::ScalarType type, int64_t size) {
    for (int root = 0; root < communicator.size(); ++root) {
      const at::Tensor tensor = numbers(communicator.rank(), size, type);
      communicator.broadcast(tensor, root);
      require_same_bits(tensor, numbers(root, size, type),
                        describe(type, size));
    }
  });
}

// Sends around the ring, then between every pair in both directions.
void check_send_and_recv(Communicator& communicator) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  for_all_forms([&](at::ScalarType type, int64_t count) {
    const at::Tensor received = at::zeros({count}, type);
    if (rank == 0) {
      communicator.send(numbers(0, count, type), 1 % size);
      communicator.recv(received, size - 1);
    } else {
      communicator.recv(received, rank - 1);
      communicator.send(numbers(rank, count, type), (rank + 1) % size);
    }
    require_same_bits(received, numbers((rank + size - 1) % size, count, type),
                      describe(type, count));
  });
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const at::Tensor message = numbers(rank, 333, at::kFloat);
      const at::Tensor reply = at::zeros({333}, at::kFloat);
      if (rank == a) {
        communicator.send(message, b);
        communicator.recv(reply, b);
        require_same_bits(reply, numbers(b, 333, at::kFloat), "reply");
      } else if (rank == b) {
        communicator.recv(reply, a);
        communicator.send(message, a);
        require_same_bits(reply, numbers(a, 333, at::kFloat), "message");
      }
    }
  }
}

void check_barrier(Communicator& communicator) {
  for (int i = 0; i < 5; ++i) communicator.barrier();
}

// The values are real numbers, whose sum depends on the order. All ranks must
// get the same bits, each time.
void check_identical_bits(Communicator& communicator) {
  for (const int64_t size : {1L, 5L, 4097L, 300007L}) {
    at::Tensor values =
        at::sin(at::arange(size, at::kDouble) * (communicator.rank() + 1))
            .to(at::kFloat);
    const at::Tensor first = values.clone();
    communicator.all_reduce(first);
    const at::Tensor again = values.clone();
    communicator.all_reduce(again);
    require_same_bits(again, first, "a repetition");

    const at::Tensor all = at::zeros({communicator.size(), size}, at::kFloat);
    communicator.all_gather(all, first);
    for (int rank = 0; rank < communicator.size(); ++rank) {
      require_same_bits(all[rank], first, "rank " + std::to_string(rank));
    }
  }
}

void check_split(Communicator& communicator) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  // Splits into odd and even ranks, in descending order.
  const auto half = communicator.split(rank % 2, -rank);
  int expected_size = 0;
  double expected = 0;
  int expected_rank = 0;
  for (int other = rank % 2; other < size; other += 2) {
    ++expected_size;
    expected += other;
    if (other > rank) ++expected_rank;
  }
  require(half->size() == expected_size, "size of the half");
  require(half->rank() == expected_rank, "rank in the half");
  const at::Tensor sum = at::full({3}, rank, at::kDouble);
  half->all_reduce(sum);
  require_same_bits(sum, at::full({3}, expected, at::kDouble), "sum of a half");

  // Ranks with equal keys keep their order, and the parent can still be used
  // together with its parts.
  const auto everyone = communicator.split(0, 0);
  require(everyone->rank() == rank && everyone->size() == size, "same order");
  const at::Tensor one = at::ones({1}, at::kLong);
  const at::Tensor two = at::ones({1}, at::kLong);
  const auto first = communicator.all_reduce_async(one, ReduceOp::kSum);
  const auto second = everyone->all_reduce_async(two, ReduceOp::kSum);
  second->wait();
  first->wait();
  require(one.item<int64_t>() == size && two.item<int64_t>() == size,
          "sums of two groups at once");

  const auto alone = communicator.split(rank, 0);
  require(alone->size() == 1 && alone->rank() == 0, "alone");
  const auto again = half->split(0, 0);
  require(again->rank() == half->rank(), "a split of a split");
  // Makes sure that no rank leaves while another one still connects.
  again->all_reduce(sum);
  require_same_bits(sum, at::full({3}, expected * expected_size, at::kDouble),
                    "sum of a split of a split");
}

}  // namespace

const std::vector<CollectiveCheck>& collective_checks() {
  static const std::vector<CollectiveCheck> checks = {
      {"sum", check_sum},
      {"max", check_max},
      {"strides", check_strides},
      {"own_memory", check_own_memory},
      {"several_under_way", check_several_under_way},
      {"all_gather", check_all_gather},
      {"all_gather_pieces", check_all_gather_pieces},
      {"reduce_scatter", check_reduce_scatter},
      {"broadcast", check_broadcast},
      {"send_and_recv", check_send_and_recv},
      {"barrier", check_barrier},
      {"identical_bits", check_identical_bits},
      {"split", check_split},
  };
  return checks;
}

size_t open_sockets() {
  size_t count = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", error)) {
    count += std::filesystem::read_symlink(entry.path(), error)
                 .string()
                 .starts_with("socket:");
  }
  return count;
}

}  // namespace headroom::collectives
