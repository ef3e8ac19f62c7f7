#include "nimble/kernels/selection.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "nimble/kernels/output_check.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

// Repeats a measurement until it has taken this long together, at most kMostRuns times.
constexpr double kBudgetNs = 2e6;
constexpr int kMostRuns = 20;
constexpr int kFewestRuns = 3;
constexpr int kFewestLongRuns = 2;  // of one that takes the budget or more
// One that is so much slower than another at its first run will not become the fastest; the very
// first one also brings memory and code into the caches.
constexpr double kHopeless = 1.3;
constexpr double kHopelessWhenCold = 2;
constexpr double kLongNs = 1e5;  // where that is little beside the work
// Packed weights of this size are not in a core's own cache when their turn comes in a replay. They
// are timed from memory: else Winograd's four times as many weights would seem to cost nothing.
constexpr size_t kFarBytes = 512 << 10;
// Of a kernel beside the framework's on random numbers, relative to the largest. On the paper's
// networks none is off by 1e-4.
constexpr double kMostError = 1e-3;

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

constexpr size_t kAlignment = 64;

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

void send_away(const std::byte* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) hwy::FlushCacheline(memory + i);
}

// Operands to try kernels of an op on.
std::vector<void*> make_operands(std::span<const TensorDesc> descs, TestMemory& memory) {
  std::vector<void*> pointers;
  for (const TensorDesc& desc : descs) {
    const auto bytes = static_cast<size_t>(desc.end_byte());
    std::byte* begin = memory.get(bytes);
    fill(begin, bytes, desc.dtype.name == "float32");
    pointers.push_back(begin + desc.begin_byte());
  }
  return pointers;
}

// A kernel with memory to run it in, until the end of this.
class Trial {
 public:
  Trial(const Kernel& kernel, const std::vector<void*>& operands, TestMemory& memory)
      : kernel_(kernel), operands_(operands), scope_(memory) {
    packed_ = memory.get(kernel.packed_bytes());
    scratch_ = memory.get(kernel.scratch_bytes(kernel.work().whole()));
    kernel.pack(operands.data(), packed_);
  }

  void run() const { kernel_.run({operands_.data(), packed_, scratch_, kernel_.work().whole()}); }
  void send_weights_away() const {
    if (kernel_.packed_bytes() >= kFarBytes) send_away(packed_, kernel_.packed_bytes());
  }

 private:
  const Kernel& kernel_;
  const std::vector<void*>& operands_;
  TestMemory::Scope scope_;
  std::byte* packed_;
  std::byte* scratch_;
};

// Not measured to the end if it is beyond `limit`.
double time_of(const Trial& trial, double limit) {
  const auto time_once = [&] {
    const Clock::time_point start = Clock::now();
    trial.run();
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  };
  const double cold = time_once();
  if (cold > kLongNs && cold > kHopelessWhenCold * limit) return cold;
  const int fewest = cold < kBudgetNs ? kFewestRuns : kFewestLongRuns;
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int run = 0; run < kMostRuns && (run < fewest || spent < kBudgetNs); ++run) {
    trial.send_weights_away();
    const double ns = time_once();
    best = std::min(best, ns);
    spent += ns;
    if (best > limit) break;
  }
  return best;
}

bool is_divisible(const Kernel& kernel) {
  const Work work = kernel.work();
  return (work.row_grain > 0 && work.rows > work.row_grain) ||
         (work.column_grain > 0 && work.columns > work.column_grain);
}

}  // namespace

std::byte* TestMemory::get(size_t bytes) {
  const size_t wanted = (bytes + kAlignment) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && used_ + wanted > blocks_[block_].bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const size_t size = std::max(wanted, kBlockBytes);
    auto* memory = static_cast<std::byte*>(::operator new(size, std::align_val_t(kAlignment)));
    blocks_.push_back({std::unique_ptr<std::byte, Delete>(memory), size});
  }
  return blocks_[block_].memory.get() + std::exchange(used_, used_ + wanted);
}

void TestMemory::Delete::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kAlignment));
}

KernelChoice KernelSelector::measure(const OpAttributes& attributes,
                                     std::span<const TensorDesc> operands) {
  KernelChoice choice;
  std::vector<KernelPtr> kernels = kernel_candidates(attributes, operands);
  const size_t ours = kernels.size();
  if (others_)
    for (const KernelPtr& kernel : others_(attributes, operands)) kernels.push_back(kernel);
  const bool checked = kernels.size() > ours;
  if (kernels.empty()) kernels.push_back(plain_loops(attributes, operands));
  const TestMemory::Scope scope(memory_);
  const std::vector<void*> test_operands = make_operands(operands, memory_);
  OutputCheck check(attributes, operands, test_operands, memory_);
  if (checked) {
    check.clear();
    Trial(*kernels[ours], test_operands, memory_).run();
    check.keep();
  }
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelPtr& kernel = kernels[i];
    const bool is_checked = checked && i < ours;
    if (is_checked) check.clear();
    const double share = is_divisible(*kernel) ? 1 / static_cast<double>(workers_) : 1;
    const double ns = time_of(Trial(*kernel, test_operands, memory_), kHopeless * best / share);
    choice.candidates.push_back({kernel->name(), ns, is_checked ? check.error() : 0});
    const double divided = ns * share;
    if (divided >= best || choice.candidates.back().error > kMostError) continue;
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
