#include <algorithm>

#include "nimble/kernels/panel_kernel.h"

namespace nimble {
namespace {

// Of packed weights at a time: they stay in a second-level cache beside a block of the input.
constexpr size_t kChunkBytes = 256 << 10;

// A weight takes about a cycle to pack, and one for 16 pixels to use.
constexpr int64_t kFewestPixels = 256;

constexpr size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

class PackInRun final : public Kernel {
 public:
  PackInRun(std::shared_ptr<const PanelKernel> kernel, int64_t pixels_of_row)
      : kernel_(std::move(kernel)), work_(kernel_->work()) {
    const Work work = work_;
    if (work.row_grain > 0) {
      const int64_t pixels = std::max<int64_t>(work.row_grain * pixels_of_row, 1);
      work_.row_grain *= (kFewestPixels + pixels - 1) / pixels;
      if (work_.row_grain >= work.rows) work_.row_grain = 0;
    }
    chunk_ = std::max<int64_t>(work.columns, 1);
    if (work.column_grain == 0 || work.columns == 0) return;
    const PackedRange all = kernel_->column_bytes(0, work.columns);
    const size_t chunks = (all.end - all.begin + kChunkBytes - 1) / kChunkBytes;
    const int64_t grains = (work.columns + work.column_grain - 1) / work.column_grain;
    const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(chunks), 1, grains);
    chunk_ = (grains + count - 1) / count * work.column_grain;
  }

  std::string name() const override { return kernel_->name(); }
  Work work() const override { return work_; }

  size_t scratch_bytes(const Part& part) const override {
    size_t packed = 0;
    size_t scratch = 0;
    for_each_chunk(part, [&](const Part& some, const PackedRange& range) {
      packed = std::max(packed, range.end - range.begin);
      scratch = std::max(scratch, kernel_->scratch_bytes(some));
    });
    return aligned(packed) + scratch;
  }

  void run(const KernelArguments& arguments) const override {
    size_t packed = 0;
    for_each_chunk(arguments.part, [&](const Part&, const PackedRange& range) {
      packed = std::max(packed, range.end - range.begin);
    });
    for_each_chunk(arguments.part, [&](const Part& some, const PackedRange& range) {
      // An address from which the chunk's own place is where its bytes are; nothing else is read.
      const uintptr_t address = reinterpret_cast<uintptr_t>(arguments.scratch) - range.begin;
      auto* origin = reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
      kernel_->pack_columns(arguments.operands, some.column_begin, some.column_end, origin);
      KernelArguments with_packed = arguments;
      with_packed.packed = origin;
      with_packed.scratch = arguments.scratch + aligned(packed);
      with_packed.part = some;
      if (some.column_end < arguments.part.column_end) with_packed.next = {};
      kernel_->run(with_packed);
    });
  }

 private:
  template <class Visit>
  void for_each_chunk(const Part& part, const Visit& visit) const {
    for (int64_t c = part.column_begin; c < part.column_end; c += chunk_) {
      Part some = part;
      some.column_begin = c;
      some.column_end = std::min(c + chunk_, part.column_end);
      visit(some, kernel_->column_bytes(some.column_begin, some.column_end));
    }
  }

  std::shared_ptr<const PanelKernel> kernel_;
  Work work_;
  int64_t chunk_ = 1;  // columns
};

}  // namespace

KernelPtr pack_in_run(std::shared_ptr<const PanelKernel> kernel, int64_t pixels_of_row) {
  return std::make_shared<PackInRun>(std::move(kernel), pixels_of_row);
}

}  // namespace nimble
