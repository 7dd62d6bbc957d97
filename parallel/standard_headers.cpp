#include "parallel/standard_headers.h"
