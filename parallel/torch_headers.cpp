#include "parallel/torch_headers.h"
