#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/collectives/communicator.h"

namespace headroom::collectives {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor&, ReduceOp) override {
    return std::make_unique<DoneWork>();
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    flat_view(output).copy_(flat_view(input));
  }
  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    flat_view(output).copy_(flat_view(input));
  }
  void broadcast(const at::Tensor&, int) override {}
  std::unique_ptr<Work> send_async(const at::Tensor&, int to) override {
    fail_no_peer(to);
  }
  std::unique_ptr<Work> recv_async(const at::Tensor&, int from) override {
    fail_no_peer(from);
  }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int) override {
    return make_single_communicator();
  }

 private:
  [[noreturn]] static void fail_no_peer(int peer) {
    fail_check("peer", __FILE__, __LINE__,
               cat("a group of one has no rank ", peer, " to exchange with"));
  }
};

class DeferredGather final : public Work {
 public:
  DeferredGather(Communicator& ranks, at::Tensor output, at::Tensor input)
      : ranks_(ranks), output_(std::move(output)), input_(std::move(input)) {}
  void wait() override { ranks_.all_gather(output_, input_); }

 private:
  Communicator& ranks_;
  const at::Tensor output_, input_;
};

}  // namespace

at::Tensor Communicator::zeros(int64_t count, at::ScalarType type) {
  return at::zeros({count}, type);
}

std::unique_ptr<Work> Communicator::all_gather_async(const at::Tensor& output,
                                                     const at::Tensor& input) {
  return std::make_unique<DeferredGather>(*this, output, input);
}

void Communicator::all_gather_pieces(const at::Tensor& flat,
                                     const std::vector<int64_t>& part_sizes) {
  int64_t begin = 0;
  for (const int64_t part : part_sizes) {
    const at::Tensor piece = flat.narrow(0, begin, part * size());
    all_gather(piece, piece.narrow(0, part * rank(), part));
    begin += part * size();
  }
}

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

}  // namespace headroom::collectives
