// Pictures as an MP4 of MPEG-4 pictures (mp4v, as YOLOv5 writes them) through
// FFmpeg, without sound, as they come: memory does not grow with their number,
// but for the container's index, some 30 bytes a picture.
#pragma once

#include <memory>
#include <string>

#include "worker/video/video_api.h"

namespace headroom::video {

std::unique_ptr<VideoWriter> create_video(const std::string& file,
                                          const VideoFormat& format,
                                          std::string& reason);

}  // namespace headroom::video
