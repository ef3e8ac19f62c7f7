// Per-target: vectors of channels, whole or in part.
#if defined(NIMBLE_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_LANES_INL_H_
#undef NIMBLE_KERNELS_LANES_INL_H_
#else
#define NIMBLE_KERNELS_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <utility>

#include "nimble/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));

// Moves the first so many lanes of vectors; the mask is made once.
class SomeLanes {
 public:
  explicit HWY_INLINE SomeLanes(int count) : count_(static_cast<size_t>(count)) {
#if HWY_TARGET <= HWY_AVX2
    mask_ = hn::FirstN(FloatTag(), count_);
#if HWY_TARGET <= HWY_AVX3
    asm("" : "+k"(mask_.raw));  // or it is made again for every use
#endif
#endif
  }
  HWY_INLINE FloatVector load(const float* from) const {
#if HWY_TARGET <= HWY_AVX2
    return hn::MaskedLoad(mask_, FloatTag(), from);
#else
    return load_first(FloatTag(), from, count_);
#endif
  }
  HWY_INLINE void store(FloatVector value, float* to) const {
#if HWY_TARGET <= HWY_AVX2
    hn::BlendedStore(value, mask_, FloatTag(), to);
#else
    store_first(FloatTag(), value, to, count_);
#endif
  }

 private:
  size_t count_;
#if HWY_TARGET <= HWY_AVX2
  hn::Mask<FloatTag> mask_;
#endif
};

// The same for whole vectors.
class AllLanes {
 public:
  explicit HWY_INLINE AllLanes(int /*count*/) {}
  HWY_INLINE FloatVector load(const float* from) const { return hn::LoadU(FloatTag(), from); }
  HWY_INLINE void store(FloatVector value, float* to) const { hn::StoreU(value, FloatTag(), to); }
};

// The value, which stays in a register: the compiler would otherwise load it again for every use.
HWY_INLINE FloatVector in_register(FloatVector value) {
#if HWY_TARGET <= HWY_AVX3
  asm("" : "+v"(value.raw));
#elif HWY_TARGET <= HWY_AVX2
  asm("" : "+x"(value.raw));
#endif
  return value;
}

// f(0) … f(count - 1), the indices being constants. Declare f with NIMBLE_INLINE_LAMBDA.
#define NIMBLE_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))
template <class F, int... kIndices>
HWY_INLINE void for_each_constant(const F& f, std::integer_sequence<int, kIndices...>) {
  (f(std::integral_constant<int, kIndices>()), ...);
}
template <int kCount, class F>
HWY_INLINE void for_each_constant(const F& f) {
  for_each_constant(f, std::make_integer_sequence<int, kCount>());
}

// The epilogue for a tile of results that are in `values`, one aligned vector per pixel, and their
// way to the output. `addend` may be null.
inline void finish_tile(const Epilogue& epilogue, float* values, int pixels, int lanes,
                        const float* addend, int64_t addend_pixel, float* output,
                        int64_t output_pixel) {
  const FloatTag d;
  const SomeLanes some(lanes);
  const size_t count = static_cast<size_t>(pixels) * kLanes;
  activate_row(d, epilogue.first, values, count);
  if (addend != nullptr) {
    for (int pixel = 0; pixel < pixels; ++pixel) {
      float* value = values + pixel * kLanes;
      const FloatVector more = some.load(addend + pixel * addend_pixel);
      hn::Store(hn::Add(hn::Load(d, value), more), d, value);
    }
  }
  activate_row(d, epilogue.last, values, count);
  for (int pixel = 0; pixel < pixels; ++pixel)
    some.store(hn::Load(d, values + pixel * kLanes), output + pixel * output_pixel);
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
