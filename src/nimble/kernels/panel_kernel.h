#pragma once

#include "nimble/kernels/kernel.h"

namespace nimble {

// A kernel whose packed bytes for some columns, from one multiple of its column grain to another or
// the end, lie in one piece. So a part can pack for itself what it reads.
class PanelKernel : public Kernel {
 public:
  virtual PackedRange column_bytes(int64_t column_begin, int64_t column_end) const = 0;
  // Only these bytes of `packed` are written.
  virtual void pack_columns(void* const* operands, int64_t column_begin, int64_t column_end,
                            std::byte* packed) const = 0;

  void pack(void* const* operands, std::byte* packed) const final {
    const int64_t columns = work().columns;
    if (columns > 0) pack_columns(operands, 0, columns, packed);
  }
};

// The same kernel for weights that change with every run: it has no packed bytes, but packs panel
// after panel into its scratch memory, where the products find them in cache. A part packs for
// itself, so it has at least so many rows that this is little beside its products.
KernelPtr pack_in_run(std::shared_ptr<const PanelKernel> kernel, int64_t pixels_of_row);

}  // namespace nimble
