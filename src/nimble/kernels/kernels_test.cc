#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "nimble/kernels/family.h"

// Every kernel of every family, on every case of the family's list and every instruction set this
// machine has, whole and in parts, against the family's plain loops.
namespace nimble {
namespace {

// A tensor's memory with room around it that must stay untouched.
class Buffer {
 public:
  explicit Buffer(const TensorDesc& desc)
      : desc_(desc), bytes_(kRoom + desc.end_byte() + kRoom, std::byte{0xff}) {}

  void* at_offset() { return origin() + desc_.begin_byte(); }
  void fill(std::mt19937& random) {
    if (desc_.dtype.name == "float32") {
      std::uniform_real_distribution<float> number(-1, 1);
      for_each([&](std::byte* p) { store(p, number(random)); });
    } else if (desc_.dtype.bytes == 8) {
      for_each([&](std::byte* p) { store(p, static_cast<int64_t>(random() % 7)); });
    } else {
      for_each([&](std::byte* p) { store(p, static_cast<int32_t>(random() % 7)); });
    }
  }
  void copy_from(const Buffer& other) { bytes_ = other.bytes_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  template <class Visit>
  void for_each(const Visit& visit) {
    if (desc_.numel() == 0) return;
    std::vector<int64_t> index(desc_.sizes.size());
    while (true) {
      int64_t offset = desc_.offset;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * desc_.strides[d];
      visit(origin() + offset * desc_.dtype.bytes);
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == desc_.sizes[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }

 private:
  static constexpr size_t kRoom = 256;
  std::byte* origin() { return bytes_.data() + kRoom; }
  template <class T>
  static void store(std::byte* p, T value) {
    std::memcpy(p, &value, sizeof value);
  }

  TensorDesc desc_;
  std::vector<std::byte> bytes_;
};

struct AlignedBytes {
  explicit AlignedBytes(size_t bytes) : storage(bytes + 64, std::byte{0x7f}) {}
  std::byte* data() {
    auto address = reinterpret_cast<uintptr_t>(storage.data());
    return storage.data() + (64 - address % 64) % 64;
  }
  std::vector<std::byte> storage;
};

std::byte* const kNowhere = reinterpret_cast<std::byte*>(uintptr_t{4096});

std::vector<int64_t> cuts(int64_t size, int64_t grain, std::mt19937& random) {
  std::vector<int64_t> points = {0};
  if (grain > 0)
    for (int64_t at = grain; at < size; at += grain)
      if (random() % 2) points.push_back(at);
  points.push_back(size);
  return points;
}

class FamilyTest : public ::testing::TestWithParam<KernelFamily> {};

TEST_P(FamilyTest, EveryKernelAgreesWithThePlainLoopsOnEveryTarget) {
  const std::vector<KernelCase> cases = GetParam().test_cases();
  ASSERT_FALSE(cases.empty());
  size_t native = 0;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (size_t c = 0; c < cases.size(); ++c) {
      const KernelCase& test = cases[c];
      std::mt19937 random(static_cast<unsigned>(c));
      std::vector<Buffer> expected;
      for (const TensorDesc& desc : test.operands) expected.emplace_back(desc);
      const size_t inputs = test.operands.size() - output_count(test.attributes);
      for (size_t i = 0; i < inputs; ++i) expected[i].fill(random);
      const size_t updated = test.operands.size() - updated_count(test.attributes);
      for (size_t i = updated; i < expected.size(); ++i) expected[i].fill(random);
      const std::vector<Buffer> before = expected;
      std::vector<Buffer> actual = expected;
      std::vector<void*> pointers;
      for (Buffer& buffer : expected) pointers.push_back(buffer.at_offset());
      GetParam().reference(test.attributes, test.operands, pointers.data());

      const auto kernels = GetParam().candidates(test.attributes, test.operands);
      native += kernels.size();
      for (const KernelPtr& kernel : kernels) {
        SCOPED_TRACE(::testing::Message() << hwy::TargetName(target) << " case " << c << " "
                                          << describe(test.attributes) << " " << kernel->name());
        AlignedBytes packed(kernel->packed_bytes());
        pointers.clear();
        for (Buffer& buffer : actual) pointers.push_back(buffer.at_offset());
        kernel->pack(pointers.data(), packed.data());
        const Work work = kernel->work();
        for (int round = 0; round < 3; ++round) {
          for (size_t i = inputs; i < actual.size(); ++i)  // as before the run
            actual[i] = before[i];
          pointers.clear();
          for (Buffer& buffer : actual) pointers.push_back(buffer.at_offset());
          std::vector<Part> parts;
          if (round == 0) {
            parts.push_back(work.whole());
          } else {
            const auto rows = cuts(work.rows, work.row_grain, random);
            const auto columns = cuts(work.columns, work.column_grain, random);
            for (size_t r = 0; r + 1 < rows.size(); ++r)
              for (size_t k = 0; k + 1 < columns.size(); ++k)
                parts.push_back({rows[r], rows[r + 1], columns[k], columns[k + 1]});
            std::shuffle(parts.begin(), parts.end(), random);
          }
          for (const Part& part : parts) {
            AlignedBytes scratch(kernel->scratch_bytes(part));
            const PackedRange range = kernel->packed_range(part);
            ASSERT_LE(range.begin, range.end);
            ASSERT_LE(range.end, kernel->packed_bytes());
            // Nothing is there: it may be fetched, not read.
            const FetchAhead next =
                round == 0 ? FetchAhead() : FetchAhead{kNowhere, kNowhere + 4096};
            kernel->run({pointers.data(), packed.data(), scratch.data(), part, next});
          }
          for (size_t i = 0; i < actual.size(); ++i) {
            if (i < inputs) {
              ASSERT_EQ(actual[i].bytes(), expected[i].bytes()) << "operand " << i;
              continue;
            }
            if (test.operands[i].dtype.name != "float32") {
              ASSERT_EQ(actual[i].bytes(), expected[i].bytes()) << "operand " << i;
              continue;
            }
            // Elements may differ by rounding; everything else is as it was.
            Buffer wanted = expected[i];
            std::vector<float> reference;
            wanted.for_each([&](std::byte* p) {
              float value;
              std::memcpy(&value, p, sizeof value);
              reference.push_back(value);
            });
            float largest = 1;
            for (float value : reference)
              if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
            const float tolerance = GetParam().tolerance * largest;
            size_t k = 0;
            bool good = true;
            actual[i].for_each([&](std::byte* p) {
              float value;
              std::memcpy(&value, p, sizeof value);
              const float want = reference[k++];
              const bool same = std::isfinite(want) ? std::abs(value - want) <= tolerance
                                : std::isnan(want)  ? std::isnan(value)
                                                    : value == want;
              if (!same && good)
                ADD_FAILURE() << "element " << k - 1 << " of operand " << i << ": " << value
                              << ", expected " << want << ", round " << round;
              good &= same;
              const float blank = std::numeric_limits<float>::quiet_NaN();
              std::memcpy(p, &blank, sizeof blank);
            });
            if (!good) return;
            wanted.for_each([](std::byte* p) {
              const float blank = std::numeric_limits<float>::quiet_NaN();
              std::memcpy(p, &blank, sizeof blank);
            });
            ASSERT_EQ(actual[i].bytes(), wanted.bytes()) << "wrote beside its output";
          }
        }
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
  EXPECT_GT(native, 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest,
                         ::testing::ValuesIn(kernel_families().begin(), kernel_families().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nimble
