#include "parallel/base/loss_terms.h"

#include "parallel/base/text.h"

namespace headroom {

NamedLosses named_losses(bool has_anchors, const LossTerms& terms) {
  NamedLosses losses;
  const auto names = loss_term_names(has_anchors);
  for (size_t i = 0; i < terms.size(); ++i) {
    losses.push_back({names[i], terms[i]});
  }
  return losses;
}

std::string losses_text(const NamedLosses& losses, std::string_view between) {
  std::string text;
  for (const NamedLoss& loss : losses) {
    text += cat(text.empty() ? "" : between, loss.name, " ",
                fixed_text(loss.value, 3));
  }
  return text;
}

}  // namespace headroom
