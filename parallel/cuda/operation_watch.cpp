#include "parallel/cuda/operation_watch.h"

#include <utility>

namespace headroom::cuda {

void OperationWatch::add(Operation operation) {
  under_way_.push_back(std::move(operation));
}

std::optional<std::string> OperationWatch::overdue(Time now) {
  while (!under_way_.empty() && under_way_.front().has_ended()) {
    under_way_.pop_front();
    first_begun_.reset();
  }
  if (under_way_.empty()) return std::nullopt;
  if (!first_begun_) {
    if (under_way_.front().has_begun()) first_begun_ = now;
    return std::nullopt;
  }
  if (now - *first_begun_ <= timeout_) return std::nullopt;
  return under_way_.front().name;
}

}  // namespace headroom::cuda
