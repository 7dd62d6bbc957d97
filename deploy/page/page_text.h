// The page as one HTML text: page.html with its style and its scripts, which
// the build joins (join_page.cmake).
#pragma once

#include <string_view>

namespace headroom::page {

std::string_view page_text();

// Where a report's data goes, and how the element with the scripts begins.
inline constexpr std::string_view kReportMark = "<!-- report-data -->";
inline constexpr std::string_view kScriptTag = "<script>";

}  // namespace headroom::page
