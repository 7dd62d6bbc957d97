// The folder of fetched weights: the files, a note about each, and the licences
// that the user has accepted.
//
//   yolov5n.pt            a complete file
//   yolov5n.pt.json       its note: address, bytes, SHA-256, server's answer
//   yolov5n.pt.partial    the received bytes of a transfer that broke
//   accepted_licences     a licence per line
//
// A note is kept when its file is removed, so that a later fetch is compared
// with the first fetch. The publisher states no digest, so the first fetch
// trusts the server's certificate alone.
//
// Errors: Error, as download.h says.
#pragma once

#include <filesystem>
#include <string>

#include "configs/published_weights.h"
#include "deploy/fetch/download.h"

namespace headroom::fetch {

// Throws Error unless the user accepts the licence of `weights` now (`accepts`)
// or did so before. Records a new acceptance.
void require_licence(const std::filesystem::path& folder,
                     const configs::PublishedWeights& weights, bool accepts);

struct FetchedFile {
  std::filesystem::path path;
  std::string sha256;
  int64_t bytes = 0;
  bool was_there = false;       // the file existed; `answer` is empty
  bool has_older_note = false;  // an earlier fetch left a note
  Answer answer;
};

// Gets the file `name` of `folder` from `address`, unless the file exists and
// its digest is the noted one, if there is a note. Throws Error (exit 2) if the
// received bytes differ from the note, or are not weights.
FetchedFile fetch_weights(const std::filesystem::path& folder,
                          const std::string& name, const std::string& address,
                          const OnBytes& on_bytes);

}  // namespace headroom::fetch
