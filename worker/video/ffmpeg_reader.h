// A video's pictures through FFmpeg, one at a time: memory is that of a few
// pictures and of the container's index, whatever the length.
//
// Read are the containers and codecs of the two lists in the .cpp; names say
// nothing. A picture that is damaged is taken as the decoder mends it, and
// counted; where the file ends, so do the pictures.
#pragma once

#include <memory>
#include <string>

#include "worker/video/video_api.h"

namespace headroom::video {

std::unique_ptr<VideoReader> open_video(const std::string& file,
                                        int64_t max_pixels,
                                        std::string& reason);

}  // namespace headroom::video
