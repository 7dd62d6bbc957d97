// Recognises label files that other programs write. Each is then read in its
// own format, or is refused with the name of the format and the way to convert
// it to YOLO or COCO.
//
// Text files of one row per object are recognised by a sample of a whole split:
// a single row of numbers often fits several formats, thousands of rows fit
// only one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::labels {

struct KnownFormat {
  std::string_view name;    // "LabelMe"
  std::string_view remedy;  // one sentence: how to convert it to YOLO or COCO
};

// The format of a JSON, XML or CSV file or of a list, from its beginning.
// Returns nullptr if it is none of the formats of other programs.
const KnownFormat* known_format(std::string_view text);

// Throws Error (exit 4), "FILE has the form of LabelMe", if known_format()
// recognises the beginning of a file.
void refuse_known_format(const std::string& file, std::string_view text);

// The number of bytes that known_format() needs.
inline constexpr size_t kKnownFormatBytes = 64 << 10;

// Reads the beginning of the files and returns the first that is one of these
// formats: "DIR/a.json has the form of LabelMe", and the remedy. Returns
// nullopt if none is.
struct NamedFormat {
  std::string what, remedy;
};
std::optional<NamedFormat> named_format(std::span<const std::string> files);

// A box may extend beyond its image, but by at most the image's own size.
// Larger numbers are taken to be pixels.
inline constexpr double kMostFraction = 2;

// The largest number of a row in percent.
inline constexpr double kMostPercent = 100;

// The way in which the rows of a split's label files are written.
struct RowForm {
  enum class Shape : uint8_t {
    kYolo,       // class cx cy w h, or class and an outline
    kKeypoints,  // class cx cy w h, then the points of a pose
    kCorners,    // class x1 y1 x2 y2, fractions
    kTopLeft,    // class x1 y1 w h, fractions
    kClassLast,  // cx cy w h class
    kPercent,    // as kYolo, from 0 to 100
    kNamed,      // as kYolo, with the name of the class
    kOidv4,      // name x1 y1 x2 y2, pixels
    kKitti,      // name, 3 values, x1 y1 x2 y2 in pixels, 7 or 8 values
    kDota,       // x1 y1 .. x4 y4 in pixels, name, difficult
    kMot,        // frame,id,x,y,w,h,.. of a video
    kVisDrone    // x,y,w,h,score,class,.. in pixels
  };
  Shape shape = Shape::kYolo;
  bool has_commas = false;          // commas between the values
  bool has_decimal_commas = false;  // 0,5 for 0.5
  // For kCorners and kTopLeft: of how many `boxes` of the sample `stick_out`
  // would stick out of their images as centres.
  int64_t boxes = 0, stick_out = 0;

  bool is_in_pixels() const {
    return shape == Shape::kOidv4 || shape == Shape::kKitti ||
           shape == Shape::kDota;
  }
  bool has_names() const { return shape == Shape::kNamed || is_in_pixels(); }
  // The row with blanks between its values and points in its numbers.
  std::string plain_row(std::string_view row) const;
  // Describes the form of the rows to users; "" for plain YOLO rows.
  std::string text() const;
  // The remedy if rows of this form are not read; else "".
  std::string_view refusal() const;
};

// The form of most of the rows. Rows of kPercent may also be in pixels of small
// images. `has_keypoints`: the data file says that rows hold poses.
RowForm row_form(std::span<const std::string> texts, bool has_keypoints);

// Whether the rows can only be plain YOLO boxes. Then a few files are enough as
// a sample.
bool are_plain_rows(std::span<const std::string> texts);

// Whether a line of a label file holds no object: it is blank, a comment or a
// header of DOTA.
bool is_no_row(std::string_view line);

// Splits a row at its blanks.
std::vector<std::string_view> words_of(std::string_view row);

}  // namespace headroom::labels
