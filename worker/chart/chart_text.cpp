#include "worker/chart/chart_text.h"

#include <fontconfig/fontconfig.h>
#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <opencv2/imgproc.hpp>
#include <set>
#include <utility>

#include "parallel/base/log.h"
#include "parallel/base/utf8.h"

namespace headroom::chart {
namespace {

constexpr int kAsciiFont = cv::FONT_HERSHEY_SIMPLEX;
// The em size at which capitals are as high as in OpenCV's font at scale 1.
constexpr double kEmPixels = 29;

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(
      text, [](unsigned char c) { return c >= ' ' && c <= '~'; });
}

// Removes and returns the first letter. REQUIRES: valid UTF-8, not empty.
char32_t take_letter(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t length = first < 0x80   ? 1
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                                       : 4;
  char32_t letter = length == 1 ? first : first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    letter = letter << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  text.remove_prefix(length);
  return letter;
}

// The fonts of this machine.
class Fonts {
 public:
  static Fonts& of_this_machine() {
    static Fonts fonts;
    return fonts;
  }

  std::mutex& mutex() { return mutex_; }

  // Returns nullptr if no font has the letter. REQUIRES: mutex() is held, also
  // while the face is used.
  FT_Face face_of(char32_t letter) {
    const auto known = face_of_.find(letter);
    if (known != face_of_.end()) return known->second;
    FT_Face face = library_ == nullptr ? nullptr : find_face(letter);
    const std::string package = font_package_of(letter);
    if (face == nullptr && named_packages_.insert(package).second) {
      char number[16];
      std::snprintf(number, sizeof number, "U+%04X",
                    static_cast<unsigned>(letter));
      log::warn(std::string("pictures: no font of this machine has ") + number +
                "; such letters are written as their numbers: install a font "
                "that has them, on Debian the package " +
                package);
    }
    face_of_.emplace(letter, face);
    return face;
  }

 private:
  template <auto Destroy>
  struct Destroyer {
    template <typename T>
    void operator()(T* object) const {
      Destroy(object);
    }
  };
  using Pattern = std::unique_ptr<FcPattern, Destroyer<FcPatternDestroy>>;
  using Letters = std::unique_ptr<FcCharSet, Destroyer<FcCharSetDestroy>>;

  Fonts() {
    if (FcInit() != FcTrue || FT_Init_FreeType(&library_) != 0) {
      library_ = nullptr;
    }
  }

  FT_Face find_face(char32_t letter) {
    const Letters letters(FcCharSetCreate());
    FcCharSetAddChar(letters.get(), letter);
    const Pattern wanted(FcPatternCreate());
    FcPatternAddString(wanted.get(), FC_FAMILY,
                       reinterpret_cast<const FcChar8*>("sans-serif"));
    FcPatternAddCharSet(wanted.get(), FC_CHARSET, letters.get());
    FcPatternAddBool(wanted.get(), FC_SCALABLE, FcTrue);
    FcPatternAddBool(wanted.get(), FC_COLOR, FcFalse);
    FcConfigSubstitute(nullptr, wanted.get(), FcMatchPattern);
    FcDefaultSubstitute(wanted.get());
    FcResult result = FcResultNoMatch;
    const Pattern match(FcFontMatch(nullptr, wanted.get(), &result));
    FcChar8* file = nullptr;
    int index = 0;
    if (!match ||
        FcPatternGetString(match.get(), FC_FILE, 0, &file) != FcResultMatch) {
      return nullptr;
    }
    FcPatternGetInteger(match.get(), FC_INDEX, 0, &index);
    const std::pair name(std::string(reinterpret_cast<char*>(file)), index);
    const auto [opened, is_new] = faces_.emplace(name, nullptr);
    if (is_new && FT_New_Face(library_, name.first.c_str(), index & 0xFFFF,
                              &opened->second) != 0) {
      opened->second = nullptr;
    }
    FT_Face face = opened->second;
    const bool has_letter = face != nullptr && FT_IS_SCALABLE(face) &&
                            FT_Get_Char_Index(face, letter) != 0;
    return has_letter ? face : nullptr;
  }

  std::mutex mutex_;
  FT_Library library_ = nullptr;
  std::map<std::pair<std::string, int>, FT_Face> faces_;
  std::map<char32_t, FT_Face> face_of_;
  std::set<std::string> named_packages_;  // packages that a warning has named
};

// Loads a letter into the slot of its face; nullptr if that fails.
FT_GlyphSlot load_letter(Fonts& fonts, char32_t letter, double scale,
                         int stroke) {
  FT_Face face = fonts.face_of(letter);
  if (face == nullptr) face = fonts.face_of(U'?');
  const auto pixels =
      static_cast<FT_UInt>(std::max(4.0, std::round(kEmPixels * scale)));
  if (face == nullptr || FT_Set_Pixel_Sizes(face, 0, pixels) != 0 ||
      FT_Load_Char(face, letter, FT_LOAD_NO_BITMAP) != 0) {
    return nullptr;
  }
  if (stroke > 1) FT_Outline_Embolden(&face->glyph->outline, 32 * (stroke - 1));
  return face->glyph;
}

void blend(cv::Mat& picture, const FT_Bitmap& letter, cv::Point corner,
           const cv::Scalar& colour) {
  for (int y = 0; y < static_cast<int>(letter.rows); ++y) {
    for (int x = 0; x < static_cast<int>(letter.width); ++x) {
      const cv::Point at = corner + cv::Point(x, y);
      if (!cv::Rect({}, picture.size()).contains(at)) continue;
      const double share = letter.buffer[y * letter.pitch + x] / 255.0;
      auto& pixel = picture.at<cv::Vec3b>(at);
      for (int c = 0; c < 3; ++c) {
        pixel[c] = cv::saturate_cast<uint8_t>(pixel[c] * (1 - share) +
                                              colour[c] * share);
      }
    }
  }
}

// Draws the letters into `picture`, unless it is nullptr, and returns their
// width in pixels. REQUIRES: the fonts' mutex is held.
int set_letters(Fonts& fonts, cv::Mat* picture, const std::u32string& letters,
                cv::Point left, double scale, const cv::Scalar& colour,
                int stroke) {
  int width = 0;
  for (const char32_t letter : letters) {
    FT_GlyphSlot slot = load_letter(fonts, letter, scale, stroke);
    if (slot == nullptr) continue;
    const auto advance = static_cast<int>(slot->advance.x >> 6);
    if (picture != nullptr &&
        FT_Render_Glyph(slot, FT_RENDER_MODE_NORMAL) == 0) {
      blend(*picture, slot->bitmap,
            left + cv::Point(width + slot->bitmap_left, -slot->bitmap_top),
            colour);
    }
    width += advance;
  }
  return width;
}

bool is_ascii(const std::u32string& letters) {
  return std::ranges::all_of(letters, [](char32_t c) { return c < 0x80; });
}

// Returns the text with each letter that no font of this machine has replaced
// by the letter's number.
std::u32string shown_letters(Fonts& fonts, const std::string& text) {
  return with_numbers(text,
                      [&](char32_t c) { return fonts.face_of(c) != nullptr; });
}

}  // namespace

std::u32string with_numbers(const std::string& text,
                            const std::function<bool(char32_t)>& has_letter) {
  const std::string valid = valid_utf8(text);
  std::u32string letters;
  for (std::string_view rest = valid; !rest.empty();) {
    const char32_t letter = take_letter(rest);
    if (letter < 0x80 || has_letter(letter)) {
      letters += letter;
      continue;
    }
    char number[16];
    std::snprintf(number, sizeof number,
                  letter > 0xFFFF ? "\\U%08X" : "\\u%04X",
                  static_cast<unsigned>(letter));
    for (const char c : std::string_view(number)) {
      letters += static_cast<unsigned char>(c);
    }
  }
  return letters;
}

const char* font_package_of(char32_t letter) {
  const bool is_east_asian = (letter >= 0x1100 && letter <= 0x11FF) ||
                             (letter >= 0x2E80 && letter <= 0xA4CF) ||
                             (letter >= 0xAC00 && letter <= 0xD7FF) ||
                             (letter >= 0xF900 && letter <= 0xFAFF) ||
                             (letter >= 0xFE30 && letter <= 0xFE4F) ||
                             (letter >= 0xFF00 && letter <= 0xFFEF) ||
                             (letter >= 0x20000 && letter <= 0x3FFFF);
  if (is_east_asian) return "fonts-noto-cjk";
  if (letter >= 0x1F000) return "fonts-symbola";  // emoji and similar symbols
  // Latin, Greek, Cyrillic, Armenian, their extensions, and symbols.
  const bool is_european =
      letter < 0x0590 || (letter >= 0x1D00 && letter <= 0x2BFF);
  return is_european ? "fonts-dejavu-core" : "fonts-noto-core";
}

void draw_text(cv::Mat& picture, const std::string& text, cv::Point left,
               double scale, const cv::Scalar& colour, int stroke) {
  std::string in_ascii = text;
  if (!is_ascii(text)) {
    Fonts& fonts = Fonts::of_this_machine();
    const std::lock_guard lock(fonts.mutex());
    const std::u32string letters = shown_letters(fonts, text);
    if (!is_ascii(letters)) {
      set_letters(fonts, &picture, letters, left, scale, colour, stroke);
      return;
    }
    in_ascii.assign(letters.begin(), letters.end());
  }
  cv::putText(picture, in_ascii, left, kAsciiFont, scale, colour, stroke,
              cv::LINE_AA);
}

cv::Size text_size(const std::string& text, double scale, int* baseline,
                   int stroke) {
  // Every line has the same height, whatever its letters.
  cv::Size size = cv::getTextSize(text, kAsciiFont, scale, stroke, baseline);
  if (is_ascii(text)) return size;
  Fonts& fonts = Fonts::of_this_machine();
  const std::lock_guard lock(fonts.mutex());
  const std::u32string letters = shown_letters(fonts, text);
  if (is_ascii(letters)) {
    const std::string in_ascii(letters.begin(), letters.end());
    return cv::getTextSize(in_ascii, kAsciiFont, scale, stroke, baseline);
  }
  size.width = set_letters(fonts, nullptr, letters, {}, scale, kInk, stroke);
  return size;
}

std::string shortened_to(const std::string& text, int pixels, double scale,
                         int stroke) {
  size_t columns = display_width(valid_utf8(text));
  std::string shown = shortened(text, columns);
  while (columns > 4 &&
         text_size(shown, scale, nullptr, stroke).width > pixels) {
    shown = shortened(text, --columns);
  }
  return shown;
}

std::string shortened(const std::string& text, size_t columns) {
  std::string all = valid_utf8(text);
  std::ranges::replace_if(
      all, [](unsigned char c) { return c < ' ' || c == 0x7F; }, '?');
  if (display_width(all) <= columns) return all;
  std::string shown;
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view before = rest;
    take_letter(rest);
    const std::string_view letter =
        before.substr(0, before.size() - rest.size());
    if (display_width(shown + std::string(letter)) > columns - 3) break;
    shown += letter;
  }
  return shown + "...";
}

}  // namespace headroom::chart
