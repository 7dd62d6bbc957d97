#include "parallel/predict/op_context.h"

#include "parallel/base/check.h"

namespace headroom::predict {

class Derivation {
 public:
  Derivation(const Memory& map, std::vector<Memory> buffers,
             std::vector<std::shared_ptr<Derivation>> derivations,
             MakeAgain make, Cost cost)
      : map_(map),
        buffers_(std::move(buffers)),
        derivations_(std::move(derivations)),
        make_(std::move(make)),
        cost_(cost) {}

  Cost cost() const { return cost_; }
  bool is_spent() const { return make_ == nullptr; }

  void announce() {
    if (uses_++ > 0 || is_spent() || !sources_.empty()) return;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (derivations_[i] != nullptr) {
        sources_.emplace_back(std::move(derivations_[i]));
      } else {
        sources_.emplace_back(std::move(buffers_[i]));
      }
    }
    buffers_.clear();
    derivations_.clear();
  }
  void withdraw() {
    if (--uses_ == 0) value_.reset();
  }

  Memory value() {
    if (value_ != nullptr) return value_;
    if (Memory map = map_.lock()) return map;
    HEADROOM_CHECK(!is_spent(), "a derived map is wanted after its last use");
    std::vector<Memory> sources;
    for (Kept& source : sources_) sources.push_back(source.take());
    sources_.clear();
    value_ = std::exchange(make_, nullptr)(sources);
    return value_;
  }

 private:
  const std::weak_ptr<Buffer> map_;
  std::vector<Memory> buffers_;
  std::vector<std::shared_ptr<Derivation>> derivations_;
  std::vector<Kept> sources_;
  MakeAgain make_;
  const Cost cost_;
  int64_t uses_ = 0;
  Memory value_;
};

namespace {

std::shared_ptr<Derivation> derivation_of(const Memory& memory, Cost most) {
  if (memory == nullptr || memory->derivation == nullptr ||
      memory->derivation->cost() > most || memory->derivation->is_spent()) {
    return nullptr;
  }
  return memory->derivation;
}

}  // namespace

Kept::Kept(std::shared_ptr<Derivation> derivation)
    : derivation_(std::move(derivation)) {
  derivation_->announce();
}

Kept::~Kept() {
  if (derivation_ != nullptr) derivation_->withdraw();
}

Memory Kept::take() {
  if (derivation_ == nullptr) return std::exchange(memory_, nullptr);
  Memory value = derivation_->value();
  std::exchange(derivation_, nullptr)->withdraw();
  return value;
}

void set_derivation(const Memory& map, const std::vector<Memory>& sources,
                    MakeAgain make, Cost cost) {
  HEADROOM_CHECK(map->derivation == nullptr, "a map has a derivation already");
  std::vector<Memory> buffers;
  std::vector<std::shared_ptr<Derivation>> derivations;
  for (const Memory& source : sources) {
    derivations.push_back(derivation_of(source, Cost::kElementwise));
    buffers.push_back(derivations.back() == nullptr ? source : nullptr);
  }
  map->derivation = std::make_shared<Derivation>(
      map, std::move(buffers), std::move(derivations), std::move(make), cost);
}

Kept keep(const Memory& memory, Cost most) {
  auto derivation = derivation_of(memory, most);
  if (derivation != nullptr) return Kept(std::move(derivation));
  return Kept(memory);
}

}  // namespace headroom::predict
