#pragma once

#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nimble {

// Bytes of device memory that an op reads or writes.
struct DeviceTouch {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writes = false;
};

// The proof of a captured graph: asks CUDA which nodes it made and what they wait for, and looks at
// every two ops that touch the same bytes, at the addresses that they were really given. Knows
// nothing of schedules, waits and drop rules.
class CapturedOrder {
 public:
  // Around the issue of each op, on the stream that it is issued to.
  void begin_op(const c10::cuda::CUDAStream& stream, std::string name);
  void end_op(const c10::cuda::CUDAStream& stream, std::vector<DeviceTouch> touches);

  // While the capture is still open, on the stream that it began on: one sentence per pair of ops
  // that is not ordered, at most a few.
  std::vector<std::string> faults(const c10::cuda::CUDAStream& origin) const;
  // How many nodes the graph has then.
  static size_t count_nodes(const c10::cuda::CUDAStream& origin);

 private:
  using Node = const void*;
  struct IssuedOp {
    std::string name;
    std::vector<Node> behind;  // what its first node waits for
    std::vector<Node> last;    // what the next op on its stream would wait for
    std::vector<DeviceTouch> touches;
  };
  std::vector<IssuedOp> ops_;
};

}  // namespace nimble
