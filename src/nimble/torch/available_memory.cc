#include "nimble/torch/available_memory.h"

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace nimble {

size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::stoull(line.substr(13)) << 10;  // in KiB
  return std::numeric_limits<size_t>::max();
}

}  // namespace nimble
