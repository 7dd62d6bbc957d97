// The page as one HTML text: page.html with its style and scripts, which the
// build joins (join_page.cmake).
#pragma once

#include <string_view>

namespace headroom::page {

std::string_view page_text();

// The place for a report's data, and the start tag of the scripts.
inline constexpr std::string_view kReportMark = "<!-- report-data -->";
inline constexpr std::string_view kScriptTag = "<script>";

}  // namespace headroom::page
