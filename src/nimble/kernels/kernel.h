#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nimble/base/op_attributes.h"
#include "nimble/base/part.h"
#include "nimble/base/tensor_desc.h"

namespace nimble {

// How an op may be divided. A part begins at a multiple of the grain, and ends at one or at the
// end. A grain of 0: not divisible that way. No rows and no columns: an empty output, nothing to
// run.
struct Work {
  int64_t rows = 1;
  int64_t row_grain = 0;
  int64_t columns = 1;
  int64_t column_grain = 0;
  Part whole() const { return {0, rows, 0, columns}; }
};

// Bytes that a thread wants soon. Addresses to fetch into a cache, never to read.
struct FetchAhead {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};
// What is fetched ahead at most: with what a task works on, it has to stay in a second-level cache.
inline constexpr size_t kMostFetchedAhead = 512 << 10;

struct KernelArguments {
  void* const* operands = nullptr;  // by operand, at its description's offset
  const std::byte* packed = nullptr;
  std::byte* scratch = nullptr;  // 64-byte aligned; contents undefined
  Part part;
  FetchAhead next = {};  // what the thread's next task wants, to be fetched beside this one's work
};

struct PackedRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const PackedRange&) const = default;
};

// One way to compute one op on tensors of known shapes. Immutable: parts of it run on several
// threads at once, each with scratch memory of its own. Nothing is allocated by run().
//
//   - Reads and writes just what its part needs: other rows and columns of the output are
//     being written by others, other rows of the input may not be there yet.
//   - Every element is computed the same way in any division into parts.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string name() const = 0;  // "convolution.rows 12x32", for people
  virtual Work work() const = 0;
  virtual size_t scratch_bytes(const Part&) const { return 0; }

  // Constants in the form that run() wants. `operands` as of run(); only constants are looked at.
  virtual size_t packed_bytes() const { return 0; }
  virtual void pack(void* const* /*operands*/, std::byte* /*packed*/) const {}
  // The packed bytes that a part reads, but for a few: what is worth fetching ahead.
  virtual PackedRange packed_range(const Part&) const { return {0, packed_bytes()}; }

  virtual void run(const KernelArguments& arguments) const = 0;
};
using KernelPtr = std::shared_ptr<const Kernel>;

// Our ways to compute an op, the one expected to be fastest first. Empty: none for these tensors.
std::vector<KernelPtr> kernel_candidates(const OpAttributes& attributes,
                                         std::span<const TensorDesc> operands);

// The same op in plain loops, for any strides; slow. What kernels are tested against. `operands` as
// of Kernel::run. False: there is none for these attributes.
bool compute_reference(const OpAttributes& attributes, std::span<const TensorDesc> operands,
                       void* const* data);

}  // namespace nimble
