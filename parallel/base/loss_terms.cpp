#include "parallel/base/loss_terms.h"

#include <algorithm>
#include <cmath>
#include <optional>

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

HeadLosses head_losses(const NamedLosses& losses) {
  const auto value_of = [&](std::string_view name) {
    const auto found = std::ranges::find(losses, name, &NamedLoss::name);
    return found == losses.end() || !std::isfinite(found->value)
               ? std::nullopt
               : std::optional(found->value);
  };
  HeadLosses of_head{.is_anchor_free = value_of("dfl").has_value()};
  const auto names = loss_term_names(!of_head.is_anchor_free);
  for (size_t i = 0; i < names.size(); ++i) {
    of_head.terms[i] = value_of(names[i]).value_or(0);
  }
  return of_head;
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
