#include "nimble/kernels/selection.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

// Repeats a measurement until it has taken this long together, at most kMostRuns times.
constexpr double kBudgetNs = 2e6;
constexpr int kMostRuns = 20;
constexpr int kFewestRuns = 3;

class PlainLoops : public Kernel {
 public:
  PlainLoops(OpAttributes attributes, std::span<const TensorDesc> operands)
      : attributes_(std::move(attributes)), operands_(operands.begin(), operands.end()) {}
  std::string name() const override { return "plain loops"; }
  Work work() const override { return {}; }
  void run(const KernelArguments& arguments) const override {
    compute_reference(attributes_, operands_, arguments.operands);
  }

 private:
  OpAttributes attributes_;
  std::vector<TensorDesc> operands_;
};

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(64)); }
};
using AlignedMemory = std::unique_ptr<std::byte, AlignedDelete>;

AlignedMemory allocate(size_t bytes) {
  return AlignedMemory(static_cast<std::byte*>(::operator new(bytes + 64, std::align_val_t(64))));
}

// Numbers between -1 and 1 for floats, 0 for anything else (an index).
void fill(std::byte* memory, size_t bytes, bool floats) {
  if (!floats) {
    std::memset(memory, 0, bytes);
    return;
  }
  uint32_t state = 12345;
  auto* numbers = reinterpret_cast<float*>(memory);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) {
    state = state * 1664525 + 1013904223;
    numbers[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
}

double time_of(const Kernel& kernel, std::span<const TensorDesc> operands) {
  std::vector<AlignedMemory> memory;
  std::vector<void*> pointers;
  for (const TensorDesc& desc : operands) {
    const auto bytes = static_cast<size_t>(desc.end_byte());
    memory.push_back(allocate(bytes));
    fill(memory.back().get(), bytes, desc.dtype.name == "float32");
    pointers.push_back(memory.back().get() + desc.begin_byte());
  }
  const Part whole = kernel.work().whole();
  const AlignedMemory packed = allocate(kernel.packed_bytes());
  const AlignedMemory scratch = allocate(kernel.scratch_bytes(whole));
  kernel.pack(pointers.data(), packed.get());
  const KernelArguments arguments{pointers.data(), packed.get(), scratch.get(), whole};
  kernel.run(arguments);
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int run = 0; run < kMostRuns && (run < kFewestRuns || spent < kBudgetNs); ++run) {
    const Clock::time_point start = Clock::now();
    kernel.run(arguments);
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    best = std::min(best, ns);
    spent += ns;
  }
  return best;
}

bool is_divisible(const Kernel& kernel) {
  const Work work = kernel.work();
  return (work.row_grain > 0 && work.rows > work.row_grain) ||
         (work.column_grain > 0 && work.columns > work.column_grain);
}

}  // namespace

KernelChoice KernelSelector::measure(const OpAttributes& attributes,
                                     std::span<const TensorDesc> operands) const {
  KernelChoice choice;
  std::vector<KernelPtr> kernels = kernel_candidates(attributes, operands);
  if (others_)
    for (const KernelPtr& kernel : others_(attributes, operands)) kernels.push_back(kernel);
  if (kernels.empty()) kernels.push_back(plain_loops(attributes, operands));
  double best = std::numeric_limits<double>::infinity();
  for (const KernelPtr& kernel : kernels) {
    const double ns = time_of(*kernel, operands);
    choice.candidates.push_back({kernel->name(), ns});
    const double divided = is_divisible(*kernel) ? ns / static_cast<double>(workers_) : ns;
    if (divided >= best) continue;
    best = divided;
    choice.ns = ns;
    choice.kernel = kernel;
  }
  return choice;
}

const KernelChoice& KernelSelector::choose(const OpAttributes& attributes,
                                           std::span<const TensorDesc> operands) {
  std::vector<TensorDesc> descs(operands.begin(), operands.end());
  for (TensorDesc& desc : descs) desc.offset = 0;  // a kernel is given addresses
  for (const Known& known : known_)
    if (known.attributes == attributes && known.operands == descs) return known.choice;
  known_.push_back({attributes, descs, measure(attributes, descs)});
  return known_.back().choice;
}

KernelPtr plain_loops(const OpAttributes& attributes, std::span<const TensorDesc> operands) {
  return std::make_shared<PlainLoops>(attributes, operands);
}

}  // namespace nimble
