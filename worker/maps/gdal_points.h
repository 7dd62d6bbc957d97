// Converts points of a reference system to pixels of a picture, through PROJ.
// Returns nullptr and sets `reason` if it cannot.
#pragma once

#include <memory>
#include <string>

#include "worker/maps/map_api.h"

namespace headroom::maps {

std::unique_ptr<MapPoints> points_of_picture(const std::string& system,
                                             const MapPlace& place,
                                             std::string& reason);

}  // namespace headroom::maps
