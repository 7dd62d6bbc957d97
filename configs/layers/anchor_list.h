// AnchorList: the box shapes that a detector's levels answer for, as one line
// of text: "10,13 16,30 33,23; 30,61 62,45 59,119", width,height in pixels,
// levels by rising stride.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::layers {

// Per level, pixels (w, h).
using AnchorList = std::vector<std::vector<std::pair<double, double>>>;

// Nothing where a word is no pair of numbers above 0, or levels differ in
// length. "" is no level.
std::optional<AnchorList> parse_anchor_list(std::string_view text);

// parse_anchor_list turns it into exactly `anchors` again.
std::string to_text(const AnchorList& anchors);

}  // namespace headroom::layers
